import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { Gpt, nextTokenLoss } from "../examples/gpt.js";
import { Trainer, adamW } from "../src/graph/index.js";
import { DeviceError, LanguageModel, OutOfMemoryError, Program, type RunResult, ShaderError, TextData, tensor } from "../src/index.js";
import { goldenFiles } from "./golden_model.js";
import { changed, onlyEntry, readCase, withOwnDevice } from "./support.js";

// Requirements of a page that stays open for hours: constant memory, one submit per step, and no unreported errors.

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

test("an error in a result rejects its run, and is reported nowhere else", () =>
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

test("adding entries without enough memory leaves no buffers behind", () =>
  withOwnDevice(async (device) => {
    const buffers = countBuffers(device);
    const gpt = await readCase("gpt")("program.jerboa"); // its step pools parameters
    const session = await (await Program.load(device, onlyEntry(gpt, "forward"))).createSession();
    const before = buffers.live();
    const step = await Program.load(device, onlyEntry(gpt, "step"));
    const pop = device.popErrorScope.bind(device);
    const isFull = { message: "the memory is full" } as GPUError;
    for (let i = 0; i < 3; ++i) {
      let scopes = 0;
      device.popErrorScope = async () => {
        const isTurn = ++scopes === 4;
        const error = await pop();
        return isTurn ? isFull : error;
      };
      await assert.rejects(step.addTo(session), (error) => error instanceof OutOfMemoryError && /no room for .*the memory is full/.test(error.message));
      assert.ok(scopes >= 4);
      assert.equal(buffers.live(), before);
    }
    device.popErrorScope = pop;
    await step.addTo(session);
    assert.deepEqual(session.entryNames, ["forward", "step"]);
    session.destroy();
    assert.equal(buffers.live(), 0);
  }));

test("if one of several entries fails, none is added, and they can be added again", () =>
  withOwnDevice(async (device) => {
    const buffers = countBuffers(device);
    const good = await Program.load(device, program);
    const session = await good.createSession({ entries: [] });
    const before = buffers.live();
    const broken = changed(program, ({ programs, code }) => {
      const step = programs.entries.findIndex((entry: { name: string }) => entry.name === "step");
      for (const shader of code[step].shaders) shader.source = shader.source.replace("let group =", "let group = nonsense;\n  let rest =");
    });
    await assert.rejects((await Program.load(device, broken)).addTo(session), ShaderError);
    assert.deepEqual(session.entryNames, []);
    assert.equal(buffers.live(), before);
    await Promise.allSettled([good.addTo(session), good.addTo(session)]);
    assert.equal(session.entryNames.length, good.entries.length);
    await (await session.run("step", { x, y })).number("loss");
    session.destroy();
    assert.equal(buffers.live(), 0);
  }));

/** A slow leak only shows after many steps, which `./dev test --full` runs. */
const isLong = process.env["JERBOA_SOAK_SECONDS"] !== undefined;

async function residentMegabytes(device: GPUDevice): Promise<number> {
  await device.queue.onSubmittedWorkDone();
  globalThis.gc?.();
  return process.memoryUsage.rss() / 2 ** 20;
}

test("loading and disposing of models does not grow memory", { timeout: 600_000 }, () =>
  withOwnDevice(async (device) => {
    const buffers = countBuffers(device);
    const load = async () => {
      const model = await LanguageModel.load(goldenFiles("llama"), { device, context: 64, sequences: 2 });
      const { tokens } = await model.generate("ab", { maxTokens: 2 }).result;
      assert.equal(tokens.length, 2);
      model.dispose();
      await device.queue.onSubmittedWorkDone();
      assert.equal(buffers.live(), 0);
    };
    for (let i = 0; i < (isLong ? 10 : 1); ++i) await load();
    const before = await residentMegabytes(device);
    for (let i = 0; i < (isLong ? 50 : 2); ++i) await load();
    const grown = (await residentMegabytes(device)) - before;
    if (isLong) assert.ok(grown < 96, `${grown} MB more`);
  }),
);

test("a Trainer's steps do not grow memory", { timeout: 600_000 }, () =>
  withOwnDevice(async (device) => {
    const buffers = countBuffers(device);
    const trainer = await Trainer.create(new Gpt({ width: 32, layers: 2, heads: 4, context: 16 }), nextTokenLoss, { device, optimizer: adamW({ lr: 1e-3 }) });
    const text = new TextData(new TextEncoder().encode("The quick brown fox jumps over the lazy dog. ".repeat(20)), { batch: 4, length: 16 });
    const train = async (count: number) => {
      for (let i = 0; i < count; ++i) await (await trainer.step(text.batch(i))).loss();
    };
    await train(isLong ? 200 : 5);
    const before = { buffers: buffers.live(), megabytes: await residentMegabytes(device) };
    await train(isLong ? 2000 : 20);
    assert.equal(buffers.live(), before.buffers);
    const grown = (await residentMegabytes(device)) - before.megabytes;
    if (isLong) assert.ok(grown < 64, `${grown} MB more`);
    trainer.destroy();
    assert.equal(buffers.live(), 0);
  }),
);

test("training and loading do not grow memory", { timeout: 600_000 }, () =>
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
    await train(isLong ? 200 : 10);
    await reload(isLong ? 5 : 1);
    const before = { buffers: buffers.live(), megabytes: await residentMegabytes(device) };
    await train(steps);
    await reload(loads);
    const grown = (await residentMegabytes(device)) - before.megabytes;
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
