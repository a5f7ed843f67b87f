import assert from "node:assert/strict";
import { test } from "node:test";

import { Compiler, describeDevice } from "../src/compiler/compiler.js";
import * as graph from "../src/graph/index.js";
import { constantDim } from "../src/dim.js";
import { declareInputs } from "../src/graph/inputs.js";
import { FileError, NotFiniteError, Program, type RunResult, type Session, UsageError, tensor } from "../src/index.js";
import { throwFailedChecks } from "../src/run_checks.js";
import { readSections } from "../src/sections.js";
import { changed, withDevice } from "./support.js";

const { Trainer, nn } = graph;
const compiler = await Compiler.load();

const rejects = (call: Promise<unknown>, kind: new (message: string) => Error, text: RegExp) =>
  assert.rejects(call, (error) => {
    assert.ok(error instanceof kind, String(error));
    assert.match(error.message, text);
    return true;
  });

const logOf = (layer: InstanceType<typeof nn.Linear>) => (x: graph.Tensor) => graph.mean(graph.square(layer.call(graph.log(x))));
const batch = (...values: number[]) => ({ x: tensor(Float32Array.from(values), [1, 3]) });

test("a trainer that checks names the first tensor that is not finite, and changes nothing", () =>
  withDevice(async (device) => {
    const create = (options: object) =>
      Trainer.create({ layer: new nn.Linear(3, 2) }, (m, { x }: { x: graph.Tensor }) => logOf(m.layer)(x), { device, compiler, ...options });
    const trainer = await create({ checkFinite: true });
    const { outputs } = await trainer.step(batch(1, 2, 3));
    assert.deepEqual([...outputs.names].sort(), ["loss", "lr"]);
    const before = await trainer.save();
    const text = /^\S+ is not finite: log produced NaN or infinity in kernel '.+' \(run_checks\.test\.[jt]s:\d+\)$/;
    await rejects(trainer.step(batch(1, 0, 3)), NotFiniteError, text);
    await rejects(trainer.step(batch(1, NaN, 3)), NotFiniteError, /^x holds NaN or infinity before the run: it is an input/);
    assert.deepEqual(await trainer.save(), before);
    assert.equal(trainer.steps, 1);
    assert.equal((await trainer.step(batch(1, 2, 3))).step, 2);
    trainer.destroy();

    const unchecked = await create({});
    assert.equal((await unchecked.step(batch(1, 0, 3))).step, 1);
    unchecked.destroy();
  }));

// What a page gets as a file checks itself, too.
function compiled(body: (x: graph.Tensor) => graph.Tensor, device: GPUDevice, checks: object): Uint8Array<ArrayBuffer> {
  const traced = new graph.TracedGraph(compiler.module, false);
  try {
    traced.trace(() => graph.output("y", body(declareInputs({ x: { shape: [2], dtype: "f32" } })["x"]!)));
    return compiler.compileGraphs({ run: traced.forward({}) }, describeDevice(device), checks);
  } finally {
    traced.free();
  }
}

async function opened(device: GPUDevice, bytes: Uint8Array): Promise<(...values: number[]) => Promise<RunResult>> {
  const session: Session = await (await Program.load(device, bytes)).createSession();
  return (...values) => session.run("run", { x: Float32Array.from(values) });
}

test("programs that were compiled with checks are checked wherever they run", () =>
  withDevice(async (device) => {
    const ratio = compiled((x) => graph.minimum(graph.div(1, x), 10), device, { checkFinite: true });
    const run = await opened(device, ratio);
    const result = await run(1, 4);
    assert.deepEqual(result.names, ["y"]);
    assert.deepEqual([...(await result.read("y")).data], [1, 0.25]);
    await rejects(run(1, 0), NotFiniteError, /is not finite: div produced NaN or infinity in kernel/);
  }));

test("indices that a program computes are checked like those of a native session", async () => {
  const check = { name: "doubled", op: "embedding", site: "model.cpp:3", limit: constantDim(5), negativeIsNone: false };
  const run = (smallest: number, largest: number, negativeIsNone = false) => {
    const result = { read: async () => tensor(Int32Array.of(smallest, largest), [2]) } as unknown as RunResult;
    return throwFailedChecks({ finite: [], indices: [{ ...check, negativeIsNone }], outputs: [] }, [], result, new Map());
  };
  await run(0, 4);
  await run(-3, 4, true);
  await run(2 ** 31 - 1, -(2 ** 31)); // of no indices
  await rejects(run(0, 6), UsageError, /^doubled holds 6, which is out of range for embedding: indices go from 0 to 4 \(model\.cpp:3\)$/);
  await rejects(run(-2, 4), UsageError, /^doubled holds -2/);
});

test("checks in a file must have their outputs, and a host must know them", () =>
  withDevice(async (device) => {
    const file = compiled((x) => graph.exp(x), device, { checkFinite: true });
    assert.equal(readSections(file).find(({ kind }) => kind === "CHCK")?.required, true);
    const plain = compiled((x) => graph.exp(x), device, {});
    assert.equal(readSections(plain).some(({ kind }) => kind === "CHCK" || kind === "RATE"), false);
    const refused = (change: Parameters<typeof changed>[1], text: RegExp) => rejects(Program.load(device, changed(file, change)), FileError, text);
    await refused(({ checks }) => checks[0].finite.pop(), /the checks need the output check\/finite of 1 i32/);
    await refused(({ checks }) => checks.pop(), /a list of checks for each entry/);
    await refused(({ checks }) => (checks[0].indices = [{ name: "x", op: "embedding", site: "", limit: 3, negative_is_none: false }]), /check\/indices of 2 i32/);
    await refused(({ checks }) => (checks[0].finite[0] = 7), /a check is not an object/);
  }));

test("learning rates that the host passes in are finite, and 0 or more", () =>
  withDevice(async (device) => {
    const trainer = await Trainer.create({ layer: new nn.Linear(3, 2) }, (m, { x }: { x: graph.Tensor }) => logOf(m.layer)(x), {
      device,
      compiler,
      optimizer: graph.sgd({ lr: { input: "rate" } }),
    });
    const step = (rate: number) => trainer.step({ ...batch(1, 2, 3), rate: tensor(new Float32Array([rate]), []) });
    await rejects(step(NaN), UsageError, /input rate: a learning rate must be 0 or more and finite, not NaN/);
    await rejects(step(-1), UsageError, /not -1/);
    assert.equal(trainer.steps, 0);
    await step(0.1);
    assert.equal(trainer.steps, 1);
    trainer.destroy();
  }));
