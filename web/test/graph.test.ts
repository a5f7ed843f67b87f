import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";

import { Compiler } from "../src/compiler/compiler.js";
import * as graph from "../src/graph/index.js";
import { DeviceError, GraphError, ShapeError, type Tensor, TextData, UsageError, readSafetensors, tensor, writeSafetensors } from "../src/index.js";
import { Gpt, nextTokenLoss } from "../examples/gpt.js";
import { casesFolder, gpu, readCase, withDevice } from "./support.js";

const { Trainer, nn, adamW, warmupCosine } = graph;
const compiler = await Compiler.load();
const sizes = { width: 32, layers: 2, heads: 4, context: 16 };

function difference(a: Tensor, b: Tensor): number {
  assert.deepEqual(a.shape, b.shape);
  return Math.max(...Array.from(a.data, (value, i) => Math.abs(value - b.data[i]!) / (1 + Math.abs(b.data[i]!))));
}

/** Traces ops on inputs x and y, without a device. */
function traced<T>(body: (x: graph.Tensor, y: graph.Tensor) => T, isTraining = false): T {
  const made = new graph.TracedGraph(compiler.module, isTraining);
  try {
    return made.trace(() => body(graph.full([2, 3, 4], 1), graph.full([4, 5], 2)));
  } finally {
    made.free();
  }
}

// The case "gpt" is the same model in C++, trained natively on the same text with the same seed.
test("a model that is defined and trained here behaves as in C++, which loads it", () =>
  withDevice(async (device) => {
    const wanted = readSafetensors(await readCase("gpt")("webgpu.safetensors")).tensors;
    const optimizer = adamW({ lr: warmupCosine(2e-3, 20, 20, 2e-4), weightDecay: 0.1, clipNorm: 1 });
    const trainer = await Trainer.create(new Gpt(sizes), nextTokenLoss, { device, compiler, optimizer });
    const text = new TextData(await readCase(".")("text.txt"), { batch: 4, length: 16 });
    for (let i = 0; i < 20; ++i) {
      const { step, loss } = await trainer.step(text.batch(i));
      assert.equal(step, i + 1);
      const native = wanted.get(`${i + 1}/loss`)!.data[0]!;
      assert.ok(Math.abs((await loss()) - native) < 2e-3, `step ${step}: ${await loss()} and ${native}`);
    }
    const saved = await trainer.save();
    const { tensors } = readSafetensors(saved);
    for (const { path } of trainer.parameters) assert.ok(difference(tensors.get(path)!, wanted.get(`final/${path}`)!) < 2e-3, path);

    const ids = tensor(Int32Array.from({ length: 11 }, (_, i) => 97 + i), [1, 11]);
    const spec = { ids: { shape: [1, "T"], dtype: "i32", symbols: { T: 16 } } } as const;
    const forward = trainer.compileForward((gpt, inputs) => gpt.call(inputs["ids"]!), spec);
    const logits = await (await forward.run({ ids })).read("output");
    assert.deepEqual(logits.shape, [1, 11, 256]);
    const folder = join(casesFolder, "typescript"); // web_cases saved reads it
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "model.safetensors"), saved);
    await writeFile(join(folder, "outputs.safetensors"), writeSafetensors(new Map([["ids", ids], ["output", logits]])));

    // Another trainer continues from the checkpoint, with the optimizer's state.
    const other = await Trainer.create(new Gpt(sizes), nextTokenLoss, { device, compiler, optimizer, seed: 9 });
    await other.load(saved);
    const [next, again] = [await trainer.step(text.batch(20)), await other.step(text.batch(20))];
    assert.equal(again.step, 21);
    assert.equal(await again.loss(), await next.loss());
    for (const one of [trainer, other]) one.destroy();
  }));

test("batches of other shapes train the same parameters, and a forward pass can come first", () =>
  withDevice(async (device) => {
    const model = { hidden: new nn.Linear(3, 8), drop: new nn.Dropout(0.5), out: new nn.Linear(8, 1) };
    const call = (m: typeof model, x: graph.Tensor) => m.out.call(m.drop.call(graph.tanh(m.hidden.call(x))));
    const trainer = await Trainer.create(
      model,
      (m, { x, y }: { x: graph.Tensor; y: graph.Tensor }) => graph.mean(graph.square(call(m, x).sub(y))),
      { device, compiler, optimizer: graph.sgd({ lr: { input: "rate" }, momentum: 0.9 }) },
    );
    const data = (rows: number) => ({
      x: tensor(Float32Array.from({ length: rows * 3 }, (_, i) => Math.sin(i)), [rows, 3]),
      y: tensor(Float32Array.from({ length: rows }, (_, i) => Math.cos(i)), [rows, 1]),
    });
    const rate = (value: number) => tensor(new Float32Array([value]), []);
    const forward = trainer.compileForward((m, { x }: { x: graph.Tensor }) => ({ y: call(m, x), mean: graph.mean(x) }));
    const before = await (await forward.run({ x: data(4).x })).read("y");
    await trainer.step({ ...data(4), rate: rate(0) });
    assert.deepEqual(await (await forward.run({ x: data(4).x })).read("y"), before);
    await trainer.step({ ...data(7), rate: rate(0.1) });
    assert.equal(trainer.steps, 2);
    assert.notDeepEqual(await (await forward.run({ x: data(4).x })).read("y"), before);
    await trainer.reset();
    assert.deepEqual(await (await forward.run({ x: data(4).x })).read("y"), before);
    await assert.rejects(trainer.step(data(4)), (error) => error instanceof UsageError && /the batch has no rate/.test(error.message));
    trainer.destroy();
  }));

test("errors in a model are reported at once, with their place", async () => {
  const rejects = (body: (x: graph.Tensor, y: graph.Tensor) => unknown, kind: new (...given: never[]) => Error, text: RegExp) =>
    assert.throws(() => traced(body), (error) => {
      assert.ok(error instanceof kind, String(error));
      assert.match((error as Error).message, text);
      return true;
    });
  rejects((x, y) => graph.matmul(y, x), ShapeError, /^matmul: \[4, 5\] x \[2, 3, 4\]: inner sizes 5 and 3 differ \(graph\.test\.[jt]s:\d+\)$/);
  rejects((x) => x.add(undefined as never), GraphError, /add: an operand is empty|add/);
  rejects((x) => x.add([1] as never), UsageError, /add: operand 2 must be a tensor, a parameter or a number, not an Array/);
  rejects((x) => graph.softmax(x, 7), ShapeError, /softmax: .*axis 7/);
  rejects((x) => graph.reshape(x, [5, 5]), ShapeError, /reshape/);
  rejects(() => new nn.Linear(4, 5).call(graph.full([1, 4], 0)), GraphError, /nn\.Linear\(4, 5\) made at graph\.test\.[jt]s:\d+ has no name/);
  rejects((x) => traced((inner) => x.add(inner)), GraphError, /add: operand 1 belongs to another graph/);
  rejects((x) => x.dim(3), UsageError, /dim: axis 3 is out of range for \[2, 3, 4\]/);
  assert.throws(() => graph.full([1], 0), (error) => error instanceof GraphError && /ops work only inside trace/.test(error.message));
  assert.throws(() => new nn.Linear(0.5, 2), UsageError);
  assert.throws(() => new nn.Dropout(1), UsageError);
  const model = { blocks: [{ qkv: new nn.Linear(8, 4) }] };
  graph.assignPaths(model);
  rejects((x) => model.blocks[0]!.qkv.call(x), ShapeError, /^blocks\.0\.qkv: matmul: /);
});

test("wrong losses and batches are named", () =>
  withDevice(async (device) => {
    const batch = { x: tensor(new Float32Array(8), [2, 4]) };
    const fails = async (loss: (m: { w: graph.Parameter }, inputs: graph.Inputs) => unknown, text: RegExp, given: unknown = batch) => {
      const trainer = await Trainer.create({ w: new graph.Parameter([4]) }, loss as never, { device, compiler });
      await assert.rejects(trainer.step(given as graph.Batch), (error) => {
        assert.match((error as Error).message, text);
        return error instanceof UsageError || error instanceof GraphError || error instanceof ShapeError;
      });
    };
    const good = (m: { w: graph.Parameter }, { x }: graph.Inputs) => graph.mean(x!.mul(m.w));
    await fails((m, inputs) => inputs["ids"]!.mul(m.w), /no input is named ids; available: x/);
    await fails(() => undefined, /the loss is not a tensor: its function returned undefined/);
    await fails(async (m, inputs) => good(m, inputs), /must not be asynchronous|is not a tensor/);
    await fails((m) => graph.mean(graph.square(m.w)), /the loss does not use x of the batch/);
    await fails((m, { x }) => x!.mul(m.w), /scalar|loss/);
    await fails(good, /the batch is empty: it holds no tensor/, {});
    await fails(good, /a batch is an object of tensors by name, not null/, null);
    await fails(good, /x of the batch must be a tensor, .* not an Array/, { x: [1, 2] });
    await assert.rejects(Trainer.create({}, good as never, { device, compiler }), /the model has no parameters/);
    await assert.rejects(Trainer.create({ w: new graph.Parameter([4]) }, 3 as never, { device, compiler }), /a loss is a function/);
  }));

test("a trainer opens a device of the given WebGPU implementation, and destroys it", async () => {
  const loss = (m: { w: graph.Parameter }, { x }: graph.Inputs) => graph.mean(x!.mul(m.w));
  const made = () => ({ w: new graph.Parameter([4]) });
  await assert.rejects(Trainer.create(made(), loss, { compiler }), /npm install webgpu/);
  const trainer = await Trainer.create(made(), loss, { compiler, gpu });
  const { loss: read } = await trainer.step({ x: tensor(new Float32Array(4), [4]) });
  assert.equal(await read(), 0);
  trainer.destroy();
  assert.equal((await trainer.device.lost).reason, "destroyed");
});

test("a refused step is not counted, and saving too early rejects", () =>
  withDevice(async (device) => {
    const loss = (m: { table: graph.nn.Embedding }, { ids }: graph.Inputs) => graph.mean(m.table.call(ids!));
    const trainer = await Trainer.create({ table: new nn.Embedding(4, 2) }, loss, { device, compiler });
    await assert.rejects(trainer.save(), (error) => error instanceof UsageError && /nothing to save yet/.test(error.message));
    const ids = (value: number) => ({ ids: tensor(Int32Array.of(value, 0), [2]) });
    assert.equal((await trainer.step(ids(1))).step, 1);
    await assert.rejects(trainer.step(ids(9)), UsageError);
    assert.equal(trainer.steps, 1);
    assert.equal((await trainer.step(ids(2))).step, 2);
    trainer.destroy();
  }));

test("a step that the device refuses does not take the number of another step in flight", () =>
  withDevice(async (device) => {
    const trainer = await Trainer.create({ w: new graph.Parameter([4]) }, (m, { x }) => graph.mean(x!.mul(m.w)), { device, compiler });
    const x = { x: tensor(new Float32Array(4), [4]) };
    await trainer.prepare(x);
    const session = (trainer as unknown as { session: { submit(...given: unknown[]): Promise<unknown> } }).session;
    const submit = session.submit.bind(session);
    let number = 0;
    session.submit = async (...given) => {
      if (++number > 1) return submit(...given);
      await new Promise((resolve) => setTimeout(resolve, 5)); // the second is submitted by then
      throw new DeviceError("a bad binding");
    };
    const [first, second] = await Promise.allSettled([trainer.step(x), trainer.step(x)]);
    assert.equal(first.status, "rejected");
    assert.equal(second.status === "fulfilled" && second.value.step, 2);
    assert.equal((await trainer.step(x)).step, 3);
    trainer.destroy();
  }));

test("functions match the op table", () =>
  traced((x, y) => {
    const type = (t: graph.Tensor) => `${t.dtype}[${t.shape.join(", ")}]`;
    const condition = graph.less(x, 0);
    const ids = graph.arange(4);
    for (const [result, wanted] of [
      [graph.matmul(x, y), "f32[2, 3, 5]"],
      [graph.matmul(y, y, { transposeA: true }), "f32[5, 5]"],
      [graph.sum(x, { axes: [1], keepdims: true }), "f32[2, 1, 4]"],
      [graph.mean(x), "f32[]"],
      [graph.argmax(x, { axis: 0 }), "i32[3, 4]"],
      [graph.softmax(x), "f32[2, 3, 4]"],
      [graph.logSoftmax(x, 1), "f32[2, 3, 4]"],
      [condition, "boolean[2, 3, 4]"],
      [graph.where(condition, x, 0), "f32[2, 3, 4]"],
      [graph.cast(x, "f16"), "f16[2, 3, 4]"],
      [graph.reshape(x, [6, -1]), "f32[6, 4]"],
      [graph.transpose(x, [2, 0, 1]), "f32[4, 2, 3]"],
      [graph.swapAxes(x, { a: 0, b: 1 }), "f32[3, 2, 4]"],
      [graph.unsqueeze(x, [0]), "f32[1, 2, 3, 4]"],
      [graph.broadcastTo(y, [3, 4, 5]), "f32[3, 4, 5]"],
      [graph.slice(x, { axis: 2, start: 1, end: -1 }), "f32[2, 3, 2]"],
      [graph.concat([x, x], 1), "f32[2, 6, 4]"],
      [graph.pad(y, { before: [1, 0], after: [0, 2], value: 9 }), "f32[5, 7]"],
      [graph.embedding(y, ids), "f32[4, 5]"],
      [graph.oneHot(ids, { depth: 6 }), "f32[4, 6]"],
      [graph.takeAlongAxis(y, graph.zeros([4, 1], "i32")), "f32[4, 1]"],
      [graph.layerNorm(x, { weight: graph.full([4], 1) }), "f32[2, 3, 4]"],
      [graph.rmsNorm(x), "f32[2, 3, 4]"],
      [graph.geglu(x, x), "f32[2, 3, 4]"],
      [graph.gelu(x, "tanh"), "f32[2, 3, 4]"],
      [graph.clamp(x, { min: -1, max: Infinity }), "f32[2, 3, 4]"],
      [graph.pow(x, 3), "f32[2, 3, 4]"],
      [graph.sumSquares([x, y]), "f32[]"],
      [graph.conv1d(x, graph.full([5, 3, 2], 1), { bias: graph.zeros([5]) }), "f32[2, 5, 3]"],
      [graph.conv2d(graph.unsqueeze(x, [0]), graph.full([5, 2, 2, 2], 1), { padding: [1, 1] }), "f32[1, 5, 4, 5]"],
      [graph.maxPool2d(graph.unsqueeze(x, [0]), { kernel: [1, 2], stride: [1, 2] }), "f32[1, 2, 3, 2]"],
      [graph.attention(x, x, x, { heads: 2, causal: true }), "f32[2, 3, 4]"],
      [graph.attentionWeights(x, x, { heads: 2 }), "f32[2, 2, 3, 3]"],
      [graph.mergeHeads(graph.splitHeads(x, 2)), "f32[2, 3, 4]"],
      [graph.split(x, [1, 3])[1]!, "f32[2, 3, 3]"],
      [graph.topK(x, 2).indices, "i32[2, 3, 2]"],
      [graph.cummax(x, { axis: 1 }).values, "f32[2, 3, 4]"],
      [graph.crossEntropy(y, ids), "f32[4]"],
      [graph.rope(graph.splitHeads(x, 2), { base: 500 }), "f32[2, 2, 3, 2]"],
      [graph.constant([1, 2, 3], [3], "i32"), "i32[3]"],
      [graph.randomNormal([2, 2]), "f32[2, 2]"],
      [graph.causalConv1d(x, graph.full([4, 3], 1)).y, "f32[2, 3, 4]"],
    ] as const)
      assert.equal(type(result), wanted);
  }));
