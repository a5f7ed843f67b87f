import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { LanguageModel, openDevice } from "../src/index.js";

// How fast a model writes under Node with npm `webgpu`, to compare with `jerboa generate --stats` on the same driver:
//   node dist/tools/bench_decode.js FOLDER [TOKENS] [TURNS]

const { create } = await import("webgpu");
const [folder = "", tokens = "64", turns = "3"] = process.argv.slice(2);
const names = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.bin", "model.safetensors"];
const found = await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name)).catch(() => undefined)] as const));
const files = new Map(found.flatMap(([name, bytes]) => (bytes === undefined ? [] : [[name, new Blob([bytes])] as const])));

const device = await openDevice({ gpu: create([]) as unknown as GPU });
const model = await LanguageModel.load(files, { device, context: 256, sequences: 1 });
const samples: number[] = [];
let text = "";
for (let turn = 0; turn <= Number(turns); ++turn) {
  const generation = await model.generate("Once upon a time", { maxTokens: Number(tokens), sampling: { temperature: 0 } }).result;
  if (turn > 0) samples.push((1000 * generation.tokenSeconds) / (generation.tokens.length - 1)); // the first warms up
  text = generation.text;
}
samples.sort((a, b) => a - b);
console.log(JSON.stringify({ device: device.adapterInfo.description, best_ms: samples[0], median_ms: samples[samples.length >> 1], text: text.slice(0, 60) }));
model.dispose();
device.destroy();
