import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { f16ToF32 } from "../src/float16.js";
import { DeviceError, DeviceLostError, FileError, JerboaError, LanguageModel, type LoadOptions, OutOfMemoryError, type Sampling, type Tensor, UsageError, openDevice, writeSafetensors } from "../src/index.js";
import { checkLogprobs, goldenFiles, goldenText, readGolden as read, tokenizer } from "./golden_model.js";
import { goldensFolder, gpu, withDevice } from "./support.js";

// Whole models, from configuration, tokenizer and weights to text. The goldens' tokens were computed by transformers, so
// every part in between must be right: the compiler in WASM, the weights, the steps, the sampler.

const small: LoadOptions = { context: 64, sequences: 2 };

/** Runs a test on the shared device, unless the options name another. */
function withModel(files: Map<string, Blob>, options: LoadOptions, body: (model: LanguageModel) => Promise<void>): Promise<void> {
  return withDevice(async (device) => {
    const model = await LanguageModel.load(files, options.gpu === undefined ? { device, ...options } : options);
    try {
      await body(model);
    } finally {
      model.dispose();
    }
  });
}

const greedy: Sampling = { temperature: 0 };

async function checkFamily(family: string, options: LoadOptions = small): Promise<void> {
  const { prompt, wanted } = goldenText(family);
  await withModel(goldenFiles(family), options, async (model) => {
    const { tokens, reason, promptTokens } = await model.continueTokens(prompt, { maxTokens: wanted.length, sampling: greedy }).result;
    assert.deepEqual(tokens, wanted, family);
    assert.equal(reason, "length");
    assert.equal(promptTokens, prompt.length);
  });
}

// With JERBOA_ALL_FAMILIES=1 every family with a decoder; each takes a software driver many seconds to compile.
const decoders = readdirSync(goldensFolder)
  .filter((name) => existsSync(join(goldensFolder, name, "golden.safetensors")) && read(name, "golden.safetensors").includes('"greedy"'))
  .sort();
for (const family of process.env["JERBOA_ALL_FAMILIES"] === "1" ? decoders : ["llama", "mamba2", "olmoe"])
  test(`${family} generates the same tokens as transformers`, () => checkFamily(family));

test("a model opens a device of the given WebGPU implementation", () => checkFamily("llama", { ...small, gpu }));

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
    const unseeded = () => model.generate("jerboa", { maxTokens: 12, sampling: { temperature: 1 } }).result;
    assert.notDeepEqual((await unseeded()).tokens, (await unseeded()).tokens, "a text is written anew");

    const held = (options: object) => model.generate("ab", { maxTokens: 20, sampling: { temperature: 1, seed: 3 }, ...options }).result;
    assert.match((await held({ regex: "[xyz]{3}" })).text, /^[xyz]{3}$/);
    assert.match((await held({ schema: { type: "boolean" } })).text, /^(true|false)$/);
    await assert.rejects(held({ regex: "[" }), (error) => error instanceof JerboaError && /the pattern \/\[\/ ends too early/.test(error.message));

    const controller = new AbortController();
    const endless = model.generate("ab", { maxTokens: 50, signal: controller.signal });
    controller.abort();
    await assert.rejects(endless.result, { name: "AbortError" });
    const early = model.generate("ab", { maxTokens: 50 });
    early.cancel();
    assert.equal((await early.result).reason, "cancelled");

    await assert.rejects(model.generate("ab", { sampling: { temprature: 1 } as object }).result, UsageError);
    await assert.rejects(model.generate("ab", { maxTokens: 0 }).result, /max_tokens is 0/);
    for (const [options, text] of [[null, /the options of a text must be an object, not null/], [{ sampling: null }, /sampling must be an object, not null/], [{ sampling: { seed: 5n } }, /cannot be written as JSON/], [{ sampling: { seed: 0.5 } }, /seed is 0.5/]] as const)
      await assert.rejects(model.generate("ab", options as never).result, (error) => error instanceof UsageError && text.test(error.message), String(text));
    await assert.rejects(model.chat("hello", null as never).result, UsageError);
    await assert.rejects(model.chat("hello").result, /no chat template/);
  });
});

const groupSize = 32;

/** The values of a quantised matrix (docs/quantised-weights.md). */
function dequantised({ dtype, shape, data }: Tensor, scales: Tensor, mins: Tensor | undefined): Tensor {
  const values = new Float32Array(shape.reduce((a, b) => a * b, 1));
  const integer = (i: number) => {
    if (dtype === "i8") return data[i]!;
    const [group, within] = [Math.floor(i / groupSize), i % groupSize];
    const byte = data[group * 16 + (within % 16)]!;
    return (within < 16 ? byte & 15 : byte >> 4) - 8;
  };
  const half = (from: Tensor | undefined, i: number) => (from === undefined ? 0 : f16ToF32(from.data[Math.floor(i / groupSize)]!));
  return { dtype: "f32", shape, data: values.map((_, i) => integer(i) * half(scales, i) + half(mins, i)) };
}

/** A model's parameters under the names of the checkpoint, in f32. */
async function checkpointOf(model: LanguageModel): Promise<Uint8Array<ArrayBuffer>> {
  const parameters = await (model as unknown as Inside).session.downloadParameters();
  const tensors = new Map<string, Tensor>();
  for (const [name, value] of parameters) {
    const original = name.replace(/\.quantised$/, "");
    if (original !== name) tensors.set(original, dequantised(value, parameters.get(`${original}.scales`)!, parameters.get(`${original}.mins`)));
    else if (value.dtype === "f16") tensors.set(name, { ...value, dtype: "f32", data: Float32Array.from(value.data, f16ToF32) });
    else if (value.dtype === "f32") tensors.set(name, value);
  }
  for (const name of [...tensors.keys()]) if (/\.(scales|mins)$/.test(name)) tensors.delete(name);
  return writeSafetensors(tensors);
}

/** A model with quantised weights generates the same text as one with their values in f32. */
async function checkQuantised(model: LanguageModel, prompt: readonly number[]): Promise<void> {
  const options = { maxTokens: 8, sampling: greedy, logprobs: 5 };
  const files = goldenFiles("llama");
  files.set("model.safetensors", new Blob([await checkpointOf(model)]));
  const got = await model.continueTokens(prompt, options).result;
  await withModel(files, { ...small, weights: "f32" }, async (plain) => checkLogprobs(got, await plain.continueTokens(prompt, options).result, 2e-3));
}

test("weights are rounded and quantised while they are loaded", async () => {
  const { prompt, wanted } = goldenText("llama");
  const bytes: number[] = [];
  for (const weights of ["f32", "f16", "int8", "int4"] as const)
    await withModel(goldenFiles("llama"), { ...small, weights }, async (model) => {
      const { tokens } = await model.continueTokens(prompt, { maxTokens: wanted.length, sampling: greedy }).result;
      assert.equal(model.weights, weights);
      bytes.push(model.weightBytes);
      if (weights === "f32" || weights === "f16") assert.deepEqual(tokens, wanted, weights);
      else await checkQuantised(model, prompt);
    });
  assert.deepEqual(bytes, bytes.toSorted((a, b) => b - a));
  assert.ok(bytes[3]! < 0.5 * bytes[0]!, bytes.join(" "));
});

/** The parts of a model that a test makes fail. */
interface Inside {
  client: { call(kind: string, name: string, ...values: unknown[]): Promise<unknown> };
  session: { run(...given: unknown[]): Promise<unknown>; downloadParameters(): Promise<Map<string, Tensor>> };
}

test("a failed text has its reason, and the next one succeeds", async () => {
  const { prompt, wanted } = goldenText("llama");
  await withModel(goldenFiles("llama"), small, async (model) => {
    const write = () => model.continueTokens(prompt, { maxTokens: wanted.length, sampling: greedy }).result;
    const inside = model as unknown as Inside;
    const { client, session } = inside;
    const [call, run] = [client.call.bind(client), session.run.bind(session)];
    let left = 3;
    const failAfter = <T extends unknown[]>(work: (...given: T) => Promise<unknown>, error: Error, isMeant: (...given: T) => boolean) => async (...given: T) => {
      if (isMeant(...given) && --left === 0) throw error;
      return work(...given);
    };
    for (const error of [new OutOfMemoryError("no room"), new DeviceError("a bad binding")]) {
      left = 3;
      session.run = failAfter(run, error, () => true);
      await assert.rejects(write(), (got) => got === error);
      assert.deepEqual((await write()).tokens, wanted, error.name);
    }
    session.run = run;
    for (const name of ["jerboa_language_next", "jerboa_language_complete"]) {
      left = 3;
      const error = new Error(`${name} failed`);
      client.call = failAfter(call, error, (_, called) => called === name);
      await assert.rejects(write(), (got) => got === error, name);
      assert.deepEqual((await write()).tokens, wanted, name);
    }
    // Two texts at once need entries that have not been compiled yet.
    left = 1;
    const error = new Error("it does not compile");
    client.call = failAfter(call, error, (_, called) => called === "jerboa_language_program");
    const both = await Promise.allSettled([write(), write()]);
    assert.ok(both.some((one) => one.status === "rejected" && one.reason === error));
    for (const { tokens } of await Promise.all([write(), write()])) assert.deepEqual(tokens, wanted);
  });
});

test("a text that is submitted while others are abandoned succeeds", { timeout: 600_000 }, async () => {
  const { prompt, wanted } = goldenText("llama");
  await withModel(goldenFiles("llama"), small, async (model) => {
    const write = () => model.continueTokens(prompt, { maxTokens: wanted.length, sampling: greedy }).result;
    const { client } = model as unknown as Inside;
    const call = client.call.bind(client);
    const error = new Error("it failed");
    let isFailing = true;
    let later: ReturnType<typeof write> | undefined;
    client.call = async (kind, name, ...values) => {
      if (isFailing && name === "jerboa_language_next") {
        isFailing = false;
        throw error;
      }
      if (name === "jerboa_language_cancel" && later === undefined) {
        later = write();
        await new Promise((resolve) => setTimeout(resolve, 20)); // until it is submitted
      }
      return call(kind, name, ...values);
    };
    await assert.rejects(write(), (got) => got === error);
    while (later === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.deepEqual((await later).tokens, wanted);
  });
});

test("if the compiler is gone, cancelling a text causes no further error", { timeout: 600_000 }, async () => {
  const unhandled: unknown[] = [];
  const listen = (reason: unknown) => void unhandled.push(reason);
  process.on("unhandledRejection", listen);
  try {
    await withModel(goldenFiles("llama"), small, async (model) => {
      const { client } = model as unknown as Inside;
      const call = client.call.bind(client);
      // The worker ends as soon as the text is cancelled; until then, the text is held after some steps.
      let steps = 0;
      let release = () => {};
      const cancelled = new Promise<void>((resolve) => (release = resolve));
      client.call = async (kind, name, ...values) => {
        if (name === "jerboa_language_cancel") release();
        else if (name === "jerboa_language_next" && ++steps > 12) await cancelled;
        else return call(kind, name, ...values);
        throw new Error("the worker has ended");
      };
      const other = model.generate("ab", { maxTokens: 50, regex: "[a-z]{50}" }); // every token has text
      for await (const _ of other) {
        other.cancel();
        break;
      }
      await assert.rejects(other.result, /the worker has ended/);
      await new Promise((resolve) => setTimeout(resolve, 20));
      client.call = call;
    });
    assert.deepEqual(unhandled, []);
  } finally {
    process.off("unhandledRejection", listen);
  }
});

test("texts fail with the loss of the device", async () => {
  const device = await openDevice({ gpu });
  const model = await LanguageModel.load(goldenFiles("llama"), { ...small, device });
  const text = model.generate("ab", { maxTokens: 50 });
  device.destroy();
  await assert.rejects(text.result, DeviceLostError);
  model.dispose();
});

test("errors in a model are reported before it is loaded", () =>
  withDevice(async (device) => {
    const refused = (files: Map<string, Blob>, options: LoadOptions, error: object) => assert.rejects(LanguageModel.load(files, { ...small, device, ...options }), error);
    await refused(new Map([["tokenizer.json", new Blob([tokenizer])]]), {}, FileError);
    await refused(goldenFiles("llama", { "config.json": "{not JSON" }), {}, FileError);
    await refused(goldenFiles("llama", { "model.safetensors": "short" }), {}, FileError);
    await refused(goldenFiles("llama", { "tokenizer.json": "{}" }), {}, FileError);
    await refused(goldenFiles("llama"), { weights: "int3" as "int4" }, /weights is "int3"/);
    await refused(goldenFiles("llama"), { context: 100_000 }, /supports at most/);
    const aborted = AbortSignal.abort();
    await refused(goldenFiles("llama"), { signal: aborted }, { name: "AbortError" });
  }));
