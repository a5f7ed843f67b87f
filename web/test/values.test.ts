import assert from "node:assert/strict";
import { test } from "node:test";

import { f16ToF32, f32ToBf16, f32ToF16 } from "../src/float16.js";
import { FileError, TextData, readSafetensors, tensor, writeSafetensors } from "../src/index.js";
import { initialValues } from "../src/initialize.js";
import { readProgramFile } from "../src/program_file.js";
import { SplitMix } from "../src/random.js";
import { caseNames } from "./check_case.js";
import { readCase } from "./support.js";

test("SplitMix gives the published numbers", () => {
  const random = new SplitMix(1234567n);
  const wanted = [6457827717110365317n, 3203168211198807973n, 9817491932198370423n, 4593380528125082431n, 16408922859458223821n];
  assert.deepEqual(wanted.map(() => random.next()), wanted);
});

test("parameters have the native library's initial values", async () => {
  for (const name of caseNames.filter((caseName) => caseName !== "llama_decode")) {
    const { storage } = readProgramFile(await readCase(name)("program.jerboa"));
    const wanted = readSafetensors(await readCase(name)("parameters.safetensors")).tensors;
    let checked = 0;
    for (const parameter of storage.filter((one) => one.isParameter)) {
      assert.deepEqual(initialValues(parameter.name, parameter.dtype, parameter.shape, parameter.init, 0n), wanted.get(parameter.name), parameter.name);
      ++checked;
    }
    assert.equal(checked, wanted.size);
  }
});

test("16-bit floats round to nearest, ties to even", () => {
  for (const [value, bits] of [[1, 0x3c00], [-2, 0xc000], [65504, 0x7bff], [65520, 0x7c00], [2 ** -24, 1], [2 ** -25, 0], [1 + 2 ** -11, 0x3c00], [1 + 3 * 2 ** -11, 0x3c02]] as const)
    assert.equal(f32ToF16(value), bits, String(value));
  for (let half = 0; half < 0x7c00; half += 7) assert.equal(f32ToF16(f16ToF32(half)), half);
  assert.equal(f32ToBf16(1), 0x3f80);
  assert.equal(f32ToBf16(1 + 2 ** -8), 0x3f80);
  assert.equal(f32ToBf16(1 + 3 * 2 ** -8), 0x3f82);
});

test("safetensors are read back as they were written", () => {
  const tensors = new Map([
    ["a", tensor(new Float32Array([1, 2, 3, 4, 5, 6]), [2, 3])],
    ["b", tensor(new Int32Array([-7]), [])],
    ["ü", tensor(new Uint32Array(0), [0, 4])],
  ]);
  const bytes = writeSafetensors(tensors, new Map([["format", "test"]]));
  const back = readSafetensors(bytes);
  assert.deepEqual(back.tensors, tensors);
  assert.equal(back.metadata.get("format"), "test");
  for (let length = 0; length < bytes.length; ++length) assert.throws(() => readSafetensors(bytes.subarray(0, length)), FileError);
});

test("batches of a text are those of the native library", async () => {
  const inputs = readSafetensors(await readCase("gpt")("inputs.safetensors")).tensors;
  const text = await readCase(".")("text.txt");
  const data = new TextData(text, { batch: 4, length: 16 });
  for (let i = 0; i < 20; ++i) {
    assert.deepEqual(data.batch(i).ids, inputs.get(`${i + 1}/ids`));
    assert.deepEqual(data.batch(i).targets, inputs.get(`${i + 1}/targets`));
  }
});
