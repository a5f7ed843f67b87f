import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { bf16ToF32 } from "../src/float16.js";
import { Compiler, Program, type Tensor, describeDevice, readSafetensors, tensor, writeSafetensors } from "../src/index.js";
import { goldenTensors, readGolden } from "./golden_model.js";
import { goldensFolder, withDevice } from "./support.js";

// Text encoders from their config.json, against what transformers computed: the vectors of tokens, and the mean of each
// text, whose second is padded.

const isThere = (family: string) => existsSync(join(goldensFolder, family, "golden.safetensors")) && goldenTensors(family).has("attention_mask");
// With JERBOA_ALL_FAMILIES=1 every family that is an encoder.
const encoders = process.env["JERBOA_ALL_FAMILIES"] === "1" ? readdirSync(goldensFolder).filter(isThere).sort() : ["bert", "modernbert"];

const difference = (a: Tensor, b: Tensor, isMeant: (i: number) => boolean = () => true) => Math.max(...Array.from(a.data, (value, i) => (isMeant(i) ? Math.abs(value - b.data[i]!) : 0)));

const asFloats = (value: Tensor): Tensor => (value.dtype === "bf16" ? { ...value, dtype: "f32", data: Float32Array.from(value.data, bf16ToF32) } : value);

for (const family of encoders)
  test(`${family} computes the same vectors as transformers`, () =>
    withDevice(async (device) => {
      const golden = goldenTensors(family);
      const [ids, mask, hidden] = ["input_ids", "attention_mask", "hidden"].map((name) => golden.get(name)!) as [Tensor, Tensor, Tensor];
      const [rows, time] = ids.shape as [number, number];
      const compiler = await Compiler.load();
      const bytes = compiler.compileModel(readGolden(family, "config.json").toString(), { device: describeDevice(device), entries: [{ encoder: true, rows, time: 16, pooling: "mean", normalise: true }] });
      const session = await (await Program.load(device, bytes)).createSession({ initialise: false });
      const { tensors } = readSafetensors(new Uint8Array(readGolden(family, "model.safetensors")));
      // Checkpoints without a head have names without the model's.
      const parameters = session.parameterNames.map((name) => [name, asFloats((tensors.get(name) ?? tensors.get(name.slice(name.indexOf(".") + 1)))!)] as const);
      session.load(writeSafetensors(new Map(parameters)));
      const lengths = Int32Array.from({ length: rows }, (_, row) => Array.from(mask.data.subarray(row * time, (row + 1) * time), Number).reduce((a, b) => a + b, 0));
      const [entry] = session.entryNames;
      const out = await session.run(entry!, { ids, lengths, token_types: tensor(new Int32Array(rows * time), [rows, time]) });
      const width = hidden.shape[2]!;
      assert.ok(difference(await out.read("hidden"), hidden, (i) => mask.data[Math.floor(i / width)] === 1) < 2e-4, "hidden");
      assert.ok(difference(await out.read("pooled"), golden.get("pooled")!) < 2e-5, "pooled");
      session.destroy();
    }));
