import assert from "node:assert/strict";
import { test } from "node:test";

import { caseNames, checkCase } from "./check_case.js";
import { Program, TextData } from "../src/index.js";
import { readCase, withDevice } from "./support.js";

for (const name of caseNames)
  test(`${name} equals the native hosts`, (context) =>
    withDevice(async (device) => {
      const report = await checkCase(device, readCase(name));
      context.diagnostic(JSON.stringify(report));
      assert.ok(report.fromWebgpu <= 1e-5, `${report.fromWebgpu} from native WebGPU`);
      assert.ok(report.fromCpu <= 2e-3, `${report.fromCpu} from the CPU engine`);
      if (name === "gpt") {
        assert.equal(report.losses.length, 20);
        assert.ok(report.losses[19]! < report.losses[0]! - 0.5, report.losses.join(" "));
      }
    }));

test("training continues after the last step of an exported schedule", () =>
  withDevice(async (device) => {
    const read = readCase(".");
    const { steps } = JSON.parse(new TextDecoder().decode(await read("manifest.json"))) as { steps: number };
    const session = await (await Program.load(device, await read("gpt.jerboa"))).createSession({ entries: ["step"] });
    const data = new TextData(await read("text.txt"), { batch: 4, length: 16 });
    for (let i = 0; i < steps + 2; ++i) await session.run("step", data.batch(i));
    const before = (await session.download("tok.weight")).data;
    await session.run("step", data.batch(steps + 2));
    const { data: after } = await session.download("tok.weight");
    const moved = Math.max(...Array.from(after, (value, i) => Math.abs(value - before[i]!)));
    assert.ok(moved > 1e-5, `the weights moved by ${moved}`);
    session.destroy();
  }));
