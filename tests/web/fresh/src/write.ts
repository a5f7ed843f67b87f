import { LanguageModel } from "jerboa";

export interface Question {
  readonly model: string;
  readonly prompt: string;
  readonly tokens: number;
  readonly weights: "f32" | "int4" | undefined;
}

/** Asks a model, and calls back with what it does and writes. */
export async function write({ model: address, prompt, tokens, weights }: Question, onState: (state: string) => void, onPiece: (piece: string) => void): Promise<void> {
  const model = await LanguageModel.load(address, {
    context: 256,
    onProgress: ({ phase, loaded, total }) => onState(`${phase} ${loaded}/${total}`),
    ...(weights === undefined ? {} : { weights }),
  });
  const options = { maxTokens: tokens, sampling: { temperature: 0 } };
  for await (const piece of model.hasChatTemplate ? model.chat(prompt, options) : model.generate(prompt, options)) onPiece(piece);
  model.dispose();
}
