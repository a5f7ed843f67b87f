import { randomFillSync } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type LoadOptions, LanguageModel, type ModelSource, openDevice } from "../src/index.js";
import { smolLm2 } from "./smollm2.js";

// How long a model of SmolLM2-135M's shapes, with random weights, takes from the cache to its first token, under Node with
// npm `webgpu`, for docs/benchmarks.md:
//   node dist/tools/bench_load.js [WEIGHTS] [TURNS] [PROMPT]
// The cache is a folder on the disk, behind the interface that browsers have for theirs. All loads use one device, so that
// only the first, which fills the cache, compiles shaders.

const { create } = await import("webgpu");
const [weights = "int4", turns = "3", prompt = "once upon a time"] = process.argv.slice(2); // a token for each letter

/** Every letter is a token, and the others are words that no text has. */
function tokenizer(): string {
  const vocab = Object.fromEntries([..."abcdefghijklmnopqrstuvwxyz "].map((letter, i) => [letter, i]));
  for (let i = Object.keys(vocab).length; i < smolLm2.vocab_size; ++i) vocab[`<${i}>`] = i;
  const split = { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false };
  return JSON.stringify({ version: "1.0", added_tokens: [], normalizer: null, pre_tokenizer: split, post_processor: null, decoder: { type: "Fuse" }, model: { type: "WordLevel", vocab, unk_token: "a" } });
}

function shapes(): Record<string, number[]> {
  const { vocab_size: vocabulary, hidden_size: width, intermediate_size: inner, num_key_value_heads: heads } = smolLm2;
  const all: Record<string, number[]> = { "model.embed_tokens.weight": [vocabulary, width], "model.norm.weight": [width] };
  for (let layer = 0; layer < smolLm2.num_hidden_layers; ++layer) {
    const prefix = `model.layers.${layer}.`;
    for (const name of ["input_layernorm", "post_attention_layernorm"]) all[`${prefix}${name}.weight`] = [width];
    for (const name of ["q", "o"]) all[`${prefix}self_attn.${name}_proj.weight`] = [width, width];
    for (const name of ["k", "v"]) all[`${prefix}self_attn.${name}_proj.weight`] = [64 * heads, width];
    for (const name of ["gate", "up"]) all[`${prefix}mlp.${name}_proj.weight`] = [inner, width];
    all[`${prefix}mlp.down_proj.weight`] = [width, inner];
  }
  return all;
}

/** A server with a checkpoint of bf16 that exists only where it is asked for. */
class RandomSource implements ModelSource {
  readonly name = "https://models.test/random-135m/";
  private readonly files = new Map<string, Uint8Array<ArrayBuffer>>();
  private readonly size: number;

  constructor() {
    let end = 0;
    const header = Object.entries(shapes()).map(([name, shape]) => [name, { dtype: "BF16", shape, data_offsets: [end, (end += 2 * shape.reduce((a, b) => a * b))] }]);
    const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
    const beginning = new Uint8Array(8 + text.length);
    new DataView(beginning.buffer).setBigUint64(0, BigInt(text.length), true);
    beginning.set(text, 8);
    this.size = beginning.length + end;
    this.files.set("model.safetensors", beginning);
    this.files.set("config.json", new TextEncoder().encode(JSON.stringify(smolLm2)));
    this.files.set("tokenizer.json", new TextEncoder().encode(tokenizer()));
  }

  async read(file: string) {
    return this.files.get(file);
  }
  async inspect(file: string) {
    if (!this.files.has(file)) return undefined;
    return { bytes: file === "model.safetensors" ? this.size : this.files.get(file)!.length, version: "one" };
  }
  async range(file: string, begin: number, end: number) {
    const known = this.files.get(file)!;
    const bytes = new Uint8Array(end - begin);
    if (end <= known.length) return known.slice(begin, end);
    const values = randomFillSync(new Uint16Array(bytes.buffer, 0, bytes.length >> 1));
    for (let i = 0; i < values.length; ++i) values[i] = 0x3c00 | (values[i]! & 0x81ff); // ±0.008 to ±0.125
    return bytes;
  }
}

/** What the cache uses of a browser's private file system. */
class DiskFolder {
  readonly kind = "directory";
  constructor(private readonly path: string) {
    mkdirSync(path, { recursive: true });
  }
  async *entries(): AsyncGenerator<[string, DiskFolder | DiskFile]> {
    for (const name of readdirSync(this.path)) yield [name, statSync(join(this.path, name)).isDirectory() ? new DiskFolder(join(this.path, name)) : new DiskFile(join(this.path, name))];
  }
  async getDirectoryHandle(name: string): Promise<DiskFolder> {
    return new DiskFolder(join(this.path, name));
  }
  async getFileHandle(name: string): Promise<DiskFile> {
    return new DiskFile(join(this.path, name));
  }
  async removeEntry(name: string): Promise<void> {
    rmSync(join(this.path, name), { recursive: true });
  }
}

class DiskFile {
  readonly kind = "file";
  constructor(private readonly path: string) {}
  async getFile(): Promise<Blob> {
    return new Blob([readFileSync(this.path)]);
  }
  async createWritable(): Promise<object> {
    return { write: async (bytes: Uint8Array) => writeFileSync(this.path, bytes), close: async () => undefined, abort: async () => undefined };
  }
}

interface Times {
  readonly phases: Record<string, number>;
  readonly seconds: number;
  readonly text: string;
}

const since = (began: number) => Math.round(performance.now() - began) / 1000;

/** Until the first token; the phases by when they began. */
async function load(source: ModelSource, device: GPUDevice): Promise<Times> {
  const began = performance.now();
  const phases: Record<string, number> = {};
  const onProgress: LoadOptions["onProgress"] = ({ phase }) => (phases[phase] ??= since(began));
  const model = await LanguageModel.load(source, { device, weights: weights as "int4", context: 1024, sequences: 1, onProgress });
  const { tokens } = await model.generate(prompt, { maxTokens: 1, sampling: { temperature: 0 } }).result;
  const seconds = since(began);
  model.dispose();
  return { phases, seconds, text: tokens.join(" ") };
}

const disk = mkdtempSync(join(tmpdir(), "jerboa-bench-"));
try {
  Object.defineProperty(globalThis, "navigator", { value: { storage: { getDirectory: async () => new DiskFolder(disk) } }, configurable: true });
  const device = await openDevice({ gpu: create([]) as unknown as GPU });
  const source = new RandomSource();
  console.log(JSON.stringify({ device: device.adapterInfo.description, weights, first: await load(source, device) }));
  source.range = () => Promise.reject(new Error("the cache is not used"));
  for (let turn = 0; turn < Number(turns); ++turn) console.log(JSON.stringify({ cached: await load(source, device) }));
  device.destroy();
} finally {
  rmSync(disk, { recursive: true });
}
