import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { DeviceError, Program, type RunResult, tensor } from "../src/index.js";
import { readCase, withOwnDevice } from "./support.js";

// What a page that stays open for hours needs: memory that stays where it was, one submit per step, and no error that
// nobody hears of.

const program = await readCase("regression")("program.jerboa");
const x = tensor(Float32Array.from({ length: 60 }, (_, i) => Math.sin(i)), [10, 6]);
const y = tensor(Float32Array.from({ length: 30 }, (_, i) => Math.cos(i)), [10, 3]);
const rows = (count: number) => tensor(new Float32Array(count * 6), [count, 6]);

/** Counts the buffers of a device that have not been destroyed. */
function countBuffers(device: GPUDevice): { readonly live: () => number } {
  const create = device.createBuffer.bind(device);
  let live = 0;
  device.createBuffer = (descriptor) => {
    const buffer = create(descriptor);
    const destroy = buffer.destroy.bind(buffer);
    ++live;
    let destroyed = false;
    buffer.destroy = () => {
      if (!destroyed) --live;
      destroyed = true;
      return destroy();
    };
    return buffer;
  };
  return { live: () => live };
}

test("readback buffers are few, whatever the shapes of results, and whether they are read or not", () =>
  withOwnDevice(async (device) => {
    const buffers = countBuffers(device);
    const session = await (await Program.load(device, program)).createSession({ entries: ["forward"] });
    const before = buffers.live();
    for (let count = 1; count <= 300; count += 13) await (await session.run("forward", { x: rows(count) })).read("output");
    assert.ok(buffers.live() - before <= 4, `${buffers.live() - before} after reading results of many shapes`);
    const results: RunResult[] = [];
    for (let i = 0; i < 60; ++i) results.push(await session.run("forward", { x: rows(1 + i) }));
    await device.queue.onSubmittedWorkDone();
    await results[0]!.read("output");
    assert.ok(buffers.live() - before <= 16 + 4, `${buffers.live() - before} with 60 results that are not read`);
    for (const [i, result] of results.entries()) assert.equal((await result.read("output")).data.length, 3 * (1 + i));
    session.destroy();
    assert.equal(buffers.live(), 0);
  }));

test("a training step is one submit, with its loss", () =>
  withOwnDevice(async (device) => {
    const session = await (await Program.load(device, program)).createSession({ entries: ["step"] });
    const submit = device.queue.submit.bind(device.queue);
    let submits = 0;
    device.queue.submit = (commands) => {
      ++submits;
      return submit(commands);
    };
    for (let i = 0; i < 5; ++i) await (await session.run("step", { x, y })).number("loss");
    assert.equal(submits, 5);
  }));

test("what goes wrong with a result rejects its run, and is heard of nowhere else", () =>
  withOwnDevice(async (device) => {
    const uncaptured: string[] = [];
    device.onuncapturederror = ({ error }) => void uncaptured.push(error.message);
    const session = await (await Program.load(device, program)).createSession({ entries: ["forward"] });
    const create = device.createBuffer.bind(device);
    device.createBuffer = (descriptor) => create({ ...descriptor, usage: /results|readback/.test(descriptor.label ?? "") ? 0x3 : descriptor.usage });
    await assert.rejects(session.run("forward", { x }), (error) => error instanceof DeviceError && /running entry forward/.test(error.message));
    await assert.rejects(session.download("up"), (error) => error instanceof DeviceError && /reading back/.test(error.message));
    device.createBuffer = create;
    await (await session.run("forward", { x })).read("output");
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.deepEqual(uncaptured, []);
  }));

/** A leak that grows slowly shows only after many steps, which `./dev test --full` takes. */
const isLong = process.env["JERBOA_SOAK_SECONDS"] !== undefined;

test("training and loading leave memory where it was", { timeout: 600_000 }, () =>
  withOwnDevice(async (device) => {
    const [steps, loads] = isLong ? [2000, 50] : [60, 4];
    const buffers = countBuffers(device);
    const load = async () => (await Program.load(device, program)).createSession({ entries: ["step"] });
    const session = await load();
    const train = async (count: number) => {
      for (let i = 0; i < count; ++i) await (await session.run("step", { x, y })).number("loss");
    };
    const reload = async (count: number) => {
      for (let i = 0; i < count; ++i) (await load()).destroy();
    };
    const resident = async () => {
      await device.queue.onSubmittedWorkDone();
      globalThis.gc?.();
      return process.memoryUsage.rss() / 2 ** 20;
    };
    await train(isLong ? 200 : 10);
    await reload(isLong ? 5 : 1);
    const before = { buffers: buffers.live(), megabytes: await resident() };
    await train(steps);
    await reload(loads);
    const grown = (await resident()) - before.megabytes;
    assert.equal(buffers.live(), before.buffers);
    if (isLong) assert.ok(grown < 64, `${grown} MB more`);
    session.destroy();
    assert.equal(buffers.live(), 0);
  }),
);

test("under Node a device outlives the variable that held its GPU object", () => {
  const index = fileURLToPath(new URL("../src/index.js", import.meta.url));
  const script = `
    import { create } from ${JSON.stringify(import.meta.resolve("webgpu"))};
    import { openDevice } from ${JSON.stringify(index)};
    const device = await openDevice({ gpu: create([]) });
    for (let i = 0; i < 4; ++i) {
      globalThis.gc();
      await new Promise((resolve) => setTimeout(resolve, 5));
      device.createBuffer({ size: 16, usage: 8 }).destroy();
      await device.queue.onSubmittedWorkDone();
    }
    console.log("done");`;
  const { status, signal, stdout, stderr } = spawnSync(process.execPath, ["--expose-gc", "--input-type=module", "-e", script], { encoding: "utf8" });
  assert.equal(`${stdout.trim()} ${status} ${signal}`, "done 0 null", stderr);
});
