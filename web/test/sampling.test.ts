import assert from "node:assert/strict";
import { test } from "node:test";

import { type GenerateOptions, type Generation, LanguageModel, type LoadOptions, type Sampling } from "../src/index.js";
import { checkLogprobs, goldenFiles, goldenTensors, goldenText } from "./golden_model.js";
import { withDevice } from "./support.js";

// Sampling by the device and by the host, which must agree, and log-probabilities. By default, software drivers leave
// sampling to the host.

const { prompt, wanted } = goldenText("llama");
const greedy: Sampling = { temperature: 0 };
const drawn: Sampling = { temperature: 1, seed: 7, topK: 40 };

type Write = (options: GenerateOptions) => Promise<Generation>;

async function withModel(device: GPUDevice, options: LoadOptions, body: (write: Write) => Promise<void>): Promise<void> {
  const model = await LanguageModel.load(goldenFiles("llama"), { device, context: 64, sequences: 2, ...options });
  try {
    await body((given) => model.continueTokens(prompt, { maxTokens: 8, ...given }).result);
  } finally {
    model.dispose();
  }
}

/** The log-probabilities after the prompt, as transformers computed its logits. */
function goldenLogprobs(): number[] {
  const { shape, data } = goldenTensors("llama").get("logits")!;
  const [, time, vocabulary] = shape as [number, number, number];
  const last = Array.from(data.subarray((time - 1) * vocabulary, time * vocabulary), Number);
  const most = Math.max(...last);
  const logSum = most + Math.log(last.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
  return last.map((logit) => logit - logSum);
}

test("the host and the device draw the same tokens, with the same log-probabilities", () =>
  withDevice(async (device) => {
    const requests: readonly GenerateOptions[] = [
      { sampling: drawn, logprobs: 5 },
      { sampling: { ...drawn, repetitionPenalty: 1.3, presencePenalty: 0.5, frequencyPenalty: 0.4 }, logprobs: 2 },
      { sampling: { ...greedy, repetitionPenalty: 1.5, frequencyPenalty: 0.7 }, logprobs: 0 },
      { sampling: { ...drawn, logitBias: new Map([[17, 4], [wanted[0]!, -3]]), bannedTokens: [wanted[1]!, 40] }, logprobs: 20 },
    ];
    const byHost: Generation[] = [];
    await withModel(device, { deviceSampling: false }, async (write) => {
      for (const request of requests) byHost.push(await write(request));
    });
    const changed = new Set(byHost.map(({ tokens }) => tokens.join(" ")));
    assert.equal(changed.size, requests.length, "the settings make a difference");
    assert.ok(!byHost[3]!.tokens.includes(wanted[1]!));
    await withModel(device, { deviceSampling: true }, async (write) => {
      for (const [i, request] of requests.entries()) {
        const got = await write(request);
        assert.ok(got.logprobs!.every(({ likeliest }) => likeliest.length === request.logprobs));
        checkLogprobs(got, byHost[i]!, 1e-4);
      }
      assert.equal((await write({ sampling: drawn })).logprobs, undefined);
    });
    const golden = goldenLogprobs();
    const [first] = byHost[0]!.logprobs!;
    for (const { token, logprob } of [first!, ...first!.likeliest]) assert.ok(Math.abs(logprob - golden[token]!) < 1e-4, `token ${token}`);
    assert.equal(first!.likeliest[0]!.logprob, Math.max(...first!.likeliest.map(({ logprob }) => logprob)));
  }));

test("drafts do not change a text", () =>
  withDevice((device) =>
    withModel(device, {}, async (write) => {
      // One text that repeats itself, and one that does not.
      for (const sampling of [{ ...drawn, logitBias: { 9: 30 } }, greedy]) {
        const plain = await write({ sampling, maxTokens: 16, logprobs: 1 });
        const guessed = await write({ sampling, maxTokens: 16, logprobs: 1, drafts: 3 });
        checkLogprobs(guessed, plain, 1e-4);
        assert.deepEqual([plain.drafted, plain.accepted], [0, 0]);
        if (sampling !== greedy) assert.ok(guessed.accepted > 4 && guessed.drafted >= guessed.accepted, `${guessed.accepted} of ${guessed.drafted}`);
      }
    }),
  ));

test("an 8-bit cache generates nearly the same text in less memory", () =>
  withDevice(async (device) => {
    const options = { sampling: greedy, maxTokens: wanted.length, logprobs: 3 };
    const made: Generation[] = [];
    const bytes: number[] = [];
    for (const cacheType of ["f32", "f16", "int8"] as const) {
      const model = await LanguageModel.load(goldenFiles("llama"), { device, context: 64, sequences: 2, cacheType });
      bytes.push(model.cacheBytes);
      made.push(await model.continueTokens(prompt, options).result);
      model.dispose();
    }
    checkLogprobs(made[1]!, made[0]!, 2e-3);
    // Up to the first token where two candidates are about equally likely.
    const [plain, packed] = [made[0]!.logprobs!, made[2]!.logprobs!];
    const same = plain.findIndex(({ token }, i) => token !== packed[i]!.token);
    const compared = plain.slice(0, same < 0 ? plain.length : same);
    assert.ok(compared.length >= 4, `only ${compared.length} tokens agree`);
    for (const [i, { logprob }] of compared.entries()) assert.ok(Math.abs(logprob - packed[i]!.logprob) < 0.03, `token ${i}: ${packed[i]!.logprob} and not ${logprob}`);
    assert.ok(compared.some(({ logprob }, i) => logprob !== packed[i]!.logprob), "it is rounded");
    assert.deepEqual(bytes, bytes.toSorted((a, b) => b - a));
    assert.ok(bytes[2]! < 0.4 * bytes[0]!, bytes.join(" "));
  }));
