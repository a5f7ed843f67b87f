// The package under Node, through its exports: node node.mjs WEBGPU MODEL PROMPT TOKENS, where WEBGPU is npm `webgpu`.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { LanguageModel, openDevice, tensor } from "jerboa";
import { Trainer, mean, nn, sgd, square } from "jerboa/graph";
import { useTrainer } from "jerboa/react";

const [webgpu, folder, prompt, tokens] = process.argv.slice(2);
const files = new Map(readdirSync(folder).map((name) => [name, new Blob([readFileSync(join(folder, name))])]));
const missing = await LanguageModel.load(files).catch((error) => error.message);
if (!/npm install webgpu/.test(missing)) throw new Error(`without WebGPU: ${missing}`);
const device = await openDevice({ gpu: (await import(webgpu)).create([]) });
const model = await LanguageModel.load(files, { device, context: 256 });
const { text } = await model.chat(prompt, { maxTokens: Number(tokens), sampling: { temperature: 0 } }).result;
model.dispose();
const trainer = await Trainer.create({ line: new nn.Linear(2, 1) }, (m, { x }) => mean(square(m.line.call(x))), { device, optimizer: sgd({ lr: 0.1 }) });
const { loss } = await trainer.step({ x: tensor(Float32Array.of(1, 2, 3, 4), [2, 2]) });
console.log(JSON.stringify({ text, loss: await loss(), hook: typeof useTrainer }));
trainer.destroy();
device.destroy();
