import assert from "node:assert/strict";
import { test } from "node:test";

import { Program, TextData, UsageError, openDevice, readSafetensors, tensor, writeSafetensors } from "../src/index.js";
import { readCase, withDevice } from "./support.js";

// Plain JavaScript can pass anything: each mistake is a UsageError that describes the argument, never a TypeError.

const program = await readCase("regression")("program.jerboa");
const x = tensor(Float32Array.from({ length: 60 }, (_, i) => Math.sin(i)), [10, 6]);
const y = tensor(Float32Array.from({ length: 30 }, (_, i) => Math.cos(i)), [10, 3]);

const isRefusal = (text: RegExp) => (error: unknown) => {
  assert.ok(error instanceof UsageError, error instanceof Error ? error.stack : String(error));
  assert.match(error.message, text);
  return true;
};
const refused = async (call: () => unknown, text: RegExp) => assert.rejects(async () => call(), isRefusal(text));
const any = (value: unknown) => value as never;

test("inputs of the wrong type are named", () =>
  withDevice(async (device) => {
    const session = await (await Program.load(device, program)).createSession();
    const step = (given: unknown) => () => session.run("step", { x: any(given), y });
    await refused(step([1, 2, 3]), /step: input x is f32\[10, 6\], and takes a tensor or a typed array, not an Array/);
    await refused(step(null), /missing inputs: x/);
    await refused(step("text"), /not a string/);
    await refused(step(3), /not the number 3/);
    await refused(step({}), /not an Object/);
    await refused(step(new Float64Array(60)), /input x is f32\[10, 6\], whose elements are in a Float32Array, but was given a Float64Array/);
    await refused(step(new Int32Array(60)), /given an Int32Array/);
    await refused(step(new Uint32Array(60)), /given a Uint32Array/);
    await refused(step(new DataView(new ArrayBuffer(240))), /given a DataView/);
    await refused(step(new Float32Array(59)), /which has 60 elements, but was given 59/);
    await refused(step({ dtype: "f32", shape: [10, 6], data: [1, 2] }), /given an Array/);
    await refused(step({ dtype: "f32", shape: null, data: x.data }), /its shape must be a list of sizes, not null/);
    await refused(step({ dtype: "f32", shape: [10, 6.5], data: x.data }), /a whole number from 0, not the number 6.5/);
    await refused(step({ dtype: "f64", shape: [10, 6], data: x.data }), /x is f64\[10, 6\] but the program takes f32\[10, 6\]/);
    await refused(() => session.run("step", any(null)), /inputs must be an object, not null/);
    await refused(() => session.run("step", any([x, y])), /inputs must be an object, not an Array/);
    await refused(() => session.run("step", { x, y }, any(null)), /options of run must be an object, not null/);
    await refused(() => session.run("step", { x, y }, { captures: any("loss") }), /captures must be a list of names, not a string/);
    session.destroy();
  }));

test("seeds, entries, files and uploads of the wrong type are named", () =>
  withDevice(async (device) => {
    const loaded = await Program.load(device, program);
    for (const seed of [0.5, NaN, Infinity, 2 ** 53, "1", null])
      await refused(() => loaded.createSession({ seed: any(seed), entries: [] }), /a seed must be a whole number, not /);
    await refused(() => loaded.createSession({ entries: any("step") }), /entries must be a list of names, not a string/);
    await refused(() => loaded.createSession(any(null)), /options of createSession must be an object, not null/);
    await refused(() => loaded.createSession({ parameters: any([1]), entries: [] }), /must be a Uint8Array or an ArrayBuffer, not an Array/);
    for (const bytes of [null, undefined, "bytes", [1, 2], new Float32Array(4), 7])
      await refused(() => Program.load(device, any(bytes)), /a program must be a Uint8Array or an ArrayBuffer, not /);
    await refused(() => Program.load(any(null), program), /on a GPUDevice, not on null: see openDevice/);
    await refused(() => openDevice(any(null)), /options of openDevice must be an object, not null/);
    await refused(() => readSafetensors(any("text")), /a safetensors file must be .* not a string/);
    await refused(() => writeSafetensors(new Map([["a", any([1])]])), /a must be a tensor, with dtype, shape and data, not an Array/);

    const session = await loaded.createSession({ seed: -1, entries: [] });
    const up = await session.download("up");
    await refused(() => session.upload(any({ up })), /a Map from names to tensors, not an Object/);
    await refused(() => session.upload(new Map([["up", any(null)]])), /up must be a tensor, .* not null/);
    await refused(() => session.upload(new Map([["up", { ...up, data: new Int32Array(144) }]])), /up is f32\[24, 6\], .* given an Int32Array/);
    await refused(() => session.upload(new Map([["up", { ...up, data: any(undefined) }]])), /given undefined/);
    await refused(() => session.upload(new Map([["up", { ...up, dtype: any("f64") }]])), /unknown type f64; available: f32/);
    await refused(() => session.reset(0.25), /a seed must be a whole number, not the number 0.25/);
    await refused(() => session.load(any(null)), /must be a Uint8Array/);
    assert.deepEqual(await session.download("up"), up);
    session.destroy();
  }));

test("texts and tensors of the wrong type are named", async () => {
  const text = new Uint8Array(100);
  await refused(() => new TextData(any("text"), { batch: 1, length: 4 }), /a text must be a Uint8Array or an ArrayBuffer, not a string/);
  await refused(() => new TextData(text, { batch: 1.5, length: 4 }), /a batch must be a whole number from 1, not the number 1.5/);
  await refused(() => new TextData(text, { batch: 1, length: 0 }), /a window's length must be a whole number from 1/);
  await refused(() => new TextData(text, { batch: 1, length: 4, seed: 0.5 }), /a seed must be a whole number/);
  await refused(() => new TextData(text, { batch: 1, length: 4 }).batch(-1), /a batch's number must be a whole number/);
  await refused(() => tensor(any([1, 2]), [2]), /a tensor is made from .* not from an Array/);
  await refused(() => tensor(any(new Float64Array(2)), [2]), /not from a Float64Array/);
  await refused(() => tensor(new Float32Array(2), any(2)), /shape must be a list of sizes, not the number 2/);
  await refused(() => tensor(new Float32Array(2), [-2]), /not the number -2/);
});

test("shared memory is accepted wherever bytes and numbers are", () =>
  withDevice(async (device) => {
    const shared = <T extends Float32Array | Uint8Array>(data: T): T => {
      const copy = new (data.constructor as new (buffer: SharedArrayBuffer) => T)(new SharedArrayBuffer(data.byteLength));
      copy.set(data);
      return copy;
    };
    const plain = await (await Program.load(device, program)).createSession();
    const session = await (await Program.load(device, shared(program))).createSession({ parameters: shared(await plain.save()) });
    const given = { x: { ...x, data: shared(x.data as Float32Array) }, y: shared(y.data as Float32Array) };
    assert.equal(await (await session.run("step", given)).number("loss"), await (await plain.run("step", { x, y })).number("loss"));
    const up = await plain.download("up");
    session.upload(new Map([["up", { ...up, data: shared(up.data as Float32Array) }]]));
    assert.deepEqual(await session.download("up"), up);
    assert.equal(new TextData(shared(new Uint8Array(64)), { batch: 1, length: 4 }).batch(0).ids.data.length, 4);
    for (const one of [plain, session]) one.destroy();
  }));
