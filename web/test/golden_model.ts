import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { type Generation, type Tensor, readSafetensors } from "../src/index.js";
import { goldensFolder } from "./support.js";

// The goldens' models, as files that a user picked.

export const readGolden = (family: string, file: string): Buffer<ArrayBuffer> => readFileSync(join(goldensFolder, family, file));

export const goldenTensors = (family: string): ReadonlyMap<string, Tensor> => readSafetensors(new Uint8Array(readGolden(family, "golden.safetensors"))).tensors;

/** A golden's prompt, and the tokens that transformers generated after it. */
export function goldenText(family: string): { prompt: number[]; wanted: number[] } {
  const tensors = goldenTensors(family);
  const [prompt, all] = [tensors.get("input_ids")!, tensors.get("greedy")!];
  const time = prompt.shape[1]!;
  return { prompt: [...prompt.data.subarray(0, time)], wanted: [...all.data.subarray(time, all.shape[1]!)] };
}

/** Asserts that two texts are the same, with the same log-probabilities. */
export function checkLogprobs(got: Generation, wanted: Generation, tolerance: number): void {
  assert.deepEqual(got.tokens, wanted.tokens);
  assert.equal(got.logprobs!.length, got.tokens.length);
  for (const [i, { token, logprob, likeliest }] of got.logprobs!.entries()) {
    const other = wanted.logprobs![i]!;
    assert.equal(token, got.tokens[i]);
    assert.ok(Math.abs(logprob - other.logprob) < tolerance, `token ${i}: ${logprob} and not ${other.logprob}`);
    assert.equal(likeliest.length, other.likeliest.length);
    // Their order may differ where two are about equally likely.
    for (const [j, one] of likeliest.entries()) assert.ok(Math.abs(one.logprob - other.likeliest[j]!.logprob) < tolerance, `token ${i}, ${j}`);
  }
}

/** Tokens are letters, or not part of any word. */
export const tokenizer = JSON.stringify({
  version: "1.0",
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: "Split", pattern: { Regex: "." }, behavior: "Isolated", invert: false },
  post_processor: null,
  decoder: { type: "Fuse" },
  model: { type: "WordLevel", vocab: Object.fromEntries([..."abcdefghijklmnopqrstuvwxyz"].map((letter, i) => [letter, i + 3]).concat([["?", 0]])), unk_token: "?" },
});

export function goldenFiles(family: string, changes: Readonly<Record<string, string>> = {}): Map<string, Blob> {
  const config = JSON.parse(readGolden(family, "config.json").toString()) as Record<string, unknown>;
  delete config["eos_token_id"]; // the goldens continue after it
  const files = { "config.json": JSON.stringify(config), "tokenizer.json": tokenizer, ...changes };
  const all = new Map<string, Blob>(Object.entries(files).map(([name, text]) => [name, new Blob([text])]));
  if (!all.has("model.safetensors")) all.set("model.safetensors", new Blob([readGolden(family, "model.safetensors")]));
  return all;
}
