import assert from "node:assert/strict";
import { test } from "node:test";

import { FileError, LanguageModel, type LoadOptions, type ModelSource, OutOfMemoryError, UsageError, readSafetensors, writeSafetensors } from "../src/index.js";
import { goldenFiles, readGolden, tokenizer } from "./golden_model.js";
import { withDevice } from "./support.js";

// Checkpoints that are not just one file with the right names, and models that are refused before they are loaded.

const golden = () => new Map(readSafetensors(new Uint8Array(readGolden("llama", "model.safetensors"))).tensors);

async function tokensOf(files: Map<string, Blob> | ModelSource, options: LoadOptions): Promise<readonly number[]> {
  const model = await LanguageModel.load(files, { context: 64, sequences: 2, ...options });
  try {
    return (await model.continueTokens([3, 4, 5], { maxTokens: 6, sampling: { temperature: 0 } }).result).tokens;
  } finally {
    model.dispose();
  }
}

const blobOf = (tensors: ReturnType<typeof golden>) => new Blob([writeSafetensors(tensors)]);

test("a checkpoint may be sharded, and have tensors that the model does not need", () => withDevice(async (device) => {
  const wanted = await tokensOf(goldenFiles("llama"), { device });
  const all = [...golden(), ["model.rotary_emb.inv_freq", { dtype: "f32", shape: [4], data: new Float32Array(4) }] as const];
  const half = all.length >> 1;
  const files = goldenFiles("llama");
  files.delete("model.safetensors");
  const map: Record<string, string> = {};
  for (const [i, part] of [all.slice(0, half), all.slice(half)].entries()) {
    const name = `model-0000${i + 1}-of-00002.safetensors`;
    files.set(name, blobOf(new Map(part)));
    for (const [tensor] of part) map[tensor] = name;
  }
  files.set("model.safetensors.index.json", new Blob([JSON.stringify({ weight_map: map })]));
  assert.deepEqual(await tokensOf(files, { device }), wanted);

  files.delete("model-00002-of-00002.safetensors");
  await assert.rejects(tokensOf(files, { device }), (error) => error instanceof FileError && /there is no model-00002-of-00002.safetensors/.test(error.message));
  for (const index of ["{", "null", "{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}']) {
    files.set("model.safetensors.index.json", new Blob([index]));
    await assert.rejects(tokensOf(files, { device }), (error) => error instanceof FileError && /index.json (is not valid JSON|has no weight_map)/.test(error.message), index);
  }
}));

test("tied embeddings may be stored once or twice", () => withDevice(async (device) => {
  const config = { ...(JSON.parse(readGolden("llama", "config.json").toString()) as object), eos_token_id: null, tie_word_embeddings: true };
  const filesOf = (tensors: ReturnType<typeof golden>) => {
    const files = goldenFiles("llama", { "config.json": JSON.stringify(config) });
    return files.set("model.safetensors", blobOf(tensors));
  };
  const tensors = golden();
  tensors.set("lm_head.weight", tensors.get("model.embed_tokens.weight")!);
  const twice = await tokensOf(filesOf(tensors), { device });
  tensors.delete("lm_head.weight");
  assert.deepEqual(await tokensOf(filesOf(tensors), { device }), twice);
}));

/** The beginning of a model whose embeddings alone have more bytes than any device allows. */
class HugeSource implements ModelSource {
  readonly name = "huge";
  private readonly files = new Map<string, Uint8Array<ArrayBuffer>>();
  private readonly begin: number;

  constructor() {
    const [vocabulary, width] = [2 ** 22, 4096];
    const config = { model_type: "llama", vocab_size: vocabulary, hidden_size: width, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 32, num_key_value_heads: 32, max_position_embeddings: 64, rms_norm_eps: 1e-5, hidden_act: "silu", tie_word_embeddings: true };
    const layer = "model.layers.0.";
    const shapes: Record<string, number[]> = {
      "model.embed_tokens.weight": [vocabulary, width],
      "model.norm.weight": [width],
      [`${layer}input_layernorm.weight`]: [width],
      [`${layer}post_attention_layernorm.weight`]: [width],
      ...Object.fromEntries(["q", "k", "v", "o"].map((name) => [`${layer}self_attn.${name}_proj.weight`, [width, width]])),
      [`${layer}mlp.gate_proj.weight`]: [64, width],
      [`${layer}mlp.up_proj.weight`]: [64, width],
      [`${layer}mlp.down_proj.weight`]: [width, 64],
    };
    let end = 0;
    const header = Object.entries(shapes).map(([name, shape]) => [name, { dtype: "F32", shape, data_offsets: [end, (end += 4 * shape.reduce((a, b) => a * b))] }]);
    const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
    const bytes = new Uint8Array(8 + text.length);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(text.length), true);
    bytes.set(text, 8);
    this.begin = bytes.length;
    this.size = bytes.length + end;
    this.files.set("model.safetensors", bytes);
    for (const [name, content] of [["config.json", JSON.stringify(config)], ["tokenizer.json", tokenizer]] as const) this.files.set(name, new TextEncoder().encode(content));
  }
  private readonly size: number;

  async read(file: string) {
    return this.files.get(file);
  }
  async inspect(file: string) {
    return this.files.has(file) ? { bytes: file === "model.safetensors" ? this.size : this.files.get(file)!.length, version: "" } : undefined;
  }
  async range(file: string, begin: number, end: number) {
    assert.ok(end <= this.begin, "tensors are fetched");
    return this.files.get(file)!.slice(begin, end);
  }
}

test("a model that does not fit is refused before its tensors are fetched", () => withDevice(async (device) => {
  await assert.rejects(tokensOf(new HugeSource(), { device }), (error) => error instanceof OutOfMemoryError && /a tensor of 64.0 GiB, but this device allows at most/.test(error.message));
}));

test("a header of an absurd length is not fetched", () => withDevice(async (device) => {
  const asked: number[] = [];
  const files = goldenFiles("llama");
  const source: ModelSource = {
    name: "absurd",
    read: async (file) => (files.has(file) && !file.endsWith("safetensors") ? new Uint8Array(await files.get(file)!.arrayBuffer()) : undefined),
    inspect: async (file) => (files.has(file) ? { bytes: 2 ** 40, version: "" } : undefined),
    range: async (_, begin, end) => (asked.push(end - begin), new Uint8Array(end - begin).fill(0x7f)),
  };
  await assert.rejects(tokensOf(source, { device }), (error) => error instanceof FileError && /model.safetensors is not a safetensors file: its header would have/.test(error.message));
  assert.deepEqual(asked, [8]);
}));

test("invalid models and options are named", () => withDevice(async (device) => {
  const refused = (files: unknown, options: unknown, text: RegExp) => assert.rejects(LanguageModel.load(files as string, options as LoadOptions), (error) => error instanceof UsageError && text.test(error.message), String(text));
  await refused(null, {}, /a model is the address of a folder, or files, not null/);
  await refused(undefined, {}, /not undefined/);
  await refused(7, {}, /not the number 7/);
  await refused({}, {}, /not an Object/);
  await refused("tiny/", {}, /tiny\/ is not the address of a model's folder/);
  await refused([{ name: "config.json" }], {}, /must be Files, not an Object/);
  await refused(goldenFiles("llama"), null, /the options of LanguageModel.load must be an object, not null/);
  await refused(goldenFiles("llama"), { device, context: "long" }, /context/);
}));
