// Code as users write it against the package's types. It is compiled, but not run.
import { type Generation, JerboaError, LanguageModel, Program, type Session, clearCachedModels, listCachedModels, openDevice, tensor } from "jerboa";
import { type Tensor, Trainer, adamW, crossEntropy, gelu, mean, nn, warmupCosine } from "jerboa/graph";
import { useLanguageModel, useTrainer } from "jerboa/react";

class Perceptron {
  up = new nn.Linear(4, 16);
  down = new nn.Linear(16, 3);
  call(x: Tensor): Tensor {
    return this.down.call(gelu(this.up.call(x)));
  }
}

const loss = (model: Perceptron, { x, labels }: { x: Tensor; labels: Tensor }): Tensor => mean(crossEntropy(model.call(x), labels));

export async function train(): Promise<number> {
  const trainer = await Trainer.create(new Perceptron(), loss, { optimizer: adamW({ lr: warmupCosine(1e-3, 10, 100, 1e-4) }) });
  const x = tensor(new Float32Array(8), [2, 4]);
  const { loss: last } = await trainer.step({ x, labels: tensor(new Int32Array(2), [2]) });
  const saved: Uint8Array = await trainer.save();
  return saved.length + (await last());
}

export async function write(): Promise<Generation> {
  const model = await LanguageModel.load("https://models.test/tiny/", { weights: "int4", cacheType: "int8", onProgress: ({ phase }) => console.log(phase) });
  for (const { source, isComplete } of await listCachedModels()) if (!isComplete) await clearCachedModels(source);
  const { logprobs } = await model.generate("Once", { logprobs: 2, drafts: 4, sampling: { logitBias: { 7: -1 }, bannedTokens: [3] } }).result;
  console.log(logprobs?.map(({ token, likeliest }) => token === likeliest[0]?.token));
  return model.generate("Once", { maxTokens: 5, sampling: { temperature: 0 } }).result;
}

export async function run(bytes: Uint8Array): Promise<Session | undefined> {
  try {
    return await (await Program.load(await openDevice(), bytes)).createSession({ seed: 1 });
  } catch (error) {
    if (error instanceof JerboaError) return undefined;
    throw error;
  }
}

export function useBoth(): string {
  const { status, loss: current } = useTrainer(() => Trainer.create(new Perceptron(), loss), () => ({ x: tensor(new Float32Array(8), [2, 4]), labels: tensor(new Int32Array(2), [2]) }), []);
  const { text } = useLanguageModel("https://models.test/tiny/");
  return `${status} ${current} ${text}`;
}

// @ts-expect-error: the weights are not of such a type
void LanguageModel.load("https://models.test/tiny/", { weights: "int3" });
