import assert from "node:assert/strict";
import { test } from "node:test";

import { caseNames, checkCase } from "./check_case.js";
import { gpu, readCase } from "./support.js";

for (const name of caseNames)
  test(`${name} gives what the native hosts give`, async (context) => {
    const report = await checkCase(gpu, readCase(name));
    context.diagnostic(JSON.stringify(report));
    assert.ok(report.fromWebgpu <= 1e-5, `${report.fromWebgpu} from native WebGPU`);
    assert.ok(report.fromCpu <= 2e-3, `${report.fromCpu} from the CPU engine`);
    if (name === "gpt") {
      assert.equal(report.losses.length, 20);
      assert.ok(report.losses[19]! < report.losses[0]! - 0.5, report.losses.join(" "));
    }
  });
