import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { FileError, LanguageModel, type LoadOptions, UsageError, openDevice, readSafetensors } from "../src/index.js";
import { goldensFolder, gpu } from "./support.js";

// Whole models: configuration, tokenizer and weights go in, and text comes out. The goldens' tokens were computed by
// transformers, so that every part in between must be right: the compiler in WASM, the weights, the steps, the sampler.

const read = (family: string, file: string) => readFileSync(join(goldensFolder, family, file));

/** Every token is a letter of the text, or not a word at all. */
const tokenizer = JSON.stringify({
  version: "1.0",
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: { type: "WordLevel", vocab: Object.fromEntries([..."abcdefghijklmnopqrstuvwxyz"].map((letter, i) => [letter, i + 3]).concat([["?", 0]])), unk_token: "?" },
});

function goldenFiles(family: string, changes: Readonly<Record<string, string>> = {}): Map<string, Blob> {
  const config = JSON.parse(read(family, "config.json").toString()) as Record<string, unknown>;
  delete config["eos_token_id"]; // the goldens go on after it
  const files = { "config.json": JSON.stringify(config), "tokenizer.json": tokenizer, ...changes };
  const all = new Map<string, Blob>(Object.entries(files).map(([name, text]) => [name, new Blob([text])]));
  if (!all.has("model.safetensors")) all.set("model.safetensors", new Blob([read(family, "model.safetensors")]));
  return all;
}

const small: LoadOptions = { gpu, context: 64, sequences: 2 };

async function withModel(files: Map<string, Blob>, options: LoadOptions, body: (model: LanguageModel) => Promise<void>): Promise<void> {
  const model = await LanguageModel.load(files, options);
  try {
    await body(model);
  } finally {
    model.dispose();
  }
}

async function checkFamily(family: string): Promise<void> {
  const { tensors } = readSafetensors(new Uint8Array(read(family, "golden.safetensors")));
  const [prompt, all] = ["input_ids", "greedy"].map((name) => tensors.get(name)!) as unknown as [{ shape: number[]; data: Int32Array }, { shape: number[]; data: Int32Array }];
  const time = prompt.shape[1]!;
  const wanted = [...all.data.subarray(time, all.shape[1]!)];
  await withModel(goldenFiles(family), small, async (model) => {
    const { tokens, reason, promptTokens } = await model.continueTokens([...prompt.data.subarray(0, time)], { maxTokens: wanted.length, sampling: { temperature: 0 } }).result;
    assert.deepEqual(tokens, wanted, family);
    assert.equal(reason, "length");
    assert.equal(promptTokens, time);
  });
}

// With JERBOA_ALL_FAMILIES=1 every family with a decoder; each takes a software driver many seconds to compile.
const decoders = readdirSync(goldensFolder)
  .filter((name) => existsSync(join(goldensFolder, name, "golden.safetensors")) && read(name, "golden.safetensors").includes('"greedy"'))
  .sort();
for (const family of process.env["JERBOA_ALL_FAMILIES"] === "1" ? decoders : ["llama"])
  test(`${family} writes what transformers writes`, () => checkFamily(family));

test("texts are streamed, sampled, stopped and cancelled", async () => {
  const progress: string[] = [];
  await withModel(goldenFiles("llama"), { ...small, onProgress: ({ phase }) => progress.push(phase) }, async (model) => {
    assert.deepEqual([...new Set(progress)], ["files", "compiling", "weights", "ready"]);
    assert.equal(model.modelType, "llama");
    assert.ok(model.parameters > 1000 && model.weights === "f32" && model.context === 64);
    assert.deepEqual(await model.encode("abz"), [3, 4, 28]);

    const pieces: string[] = [];
    const sampled = model.generate("jerboa", { maxTokens: 12, sampling: { temperature: 1, seed: 7 } });
    for await (const piece of sampled) pieces.push(piece);
    const { text, tokens } = await sampled.result;
    assert.equal(pieces.join(""), text);
    assert.equal(tokens.length, 12);
    const again = await model.generate("jerboa", { maxTokens: 12, sampling: { temperature: 1, seed: 7 } }).result;
    assert.deepEqual(again.tokens, tokens);

    const controller = new AbortController();
    const endless = model.generate("ab", { maxTokens: 50, signal: controller.signal });
    controller.abort();
    await assert.rejects(endless.result, { name: "AbortError" });
    const early = model.generate("ab", { maxTokens: 50 });
    early.cancel();
    assert.equal((await early.result).reason, "cancelled");

    await assert.rejects(model.generate("ab", { sampling: { temprature: 1 } as object }).result, UsageError);
    await assert.rejects(model.generate("ab", { maxTokens: 0 }).result, /max_tokens is 0/);
    await assert.rejects(model.chat("hello").result, /no chat template/);
  });
});

test("what is wrong with a model is said before it is loaded", async () => {
  const device = await openDevice({ gpu });
  const refused = (files: Map<string, Blob>, options: LoadOptions, error: object) => assert.rejects(LanguageModel.load(files, { ...small, device, ...options }), error);
  try {
    await refused(new Map([["tokenizer.json", new Blob([tokenizer])]]), {}, FileError);
    await refused(goldenFiles("llama", { "config.json": "{not JSON" }), {}, FileError);
    await refused(goldenFiles("llama", { "model.safetensors": "short" }), {}, FileError);
    await refused(goldenFiles("llama", { "tokenizer.json": "{}" }), {}, FileError);
    await refused(goldenFiles("llama"), { weights: "int3" as "int4" }, /weights is "int3"/);
    await refused(goldenFiles("llama"), { context: 100_000 }, /supports at most/);
    const aborted = AbortSignal.abort();
    await refused(goldenFiles("llama"), { signal: aborted }, { name: "AbortError" });
  } finally {
    device.destroy();
  }
});
