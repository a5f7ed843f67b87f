import { Gpt, nextTokenLoss } from "../examples/gpt.js";
import { Compiler } from "../src/compiler/compiler.js";
import { Trainer, adam } from "../src/graph/index.js";
import { openDevice, tensor } from "../src/index.js";

// The training step that docs/benchmarks.md compares with jax-js (`tiny`), under Node with npm `webgpu`:
//   node dist/tools/bench_step.js [SECONDS]

const { create } = await import("webgpu");
const seconds = Number(process.argv[2] ?? 8);
const [batch, context, vocabulary] = [16, 32, 256];

const began = performance.now();
const device = await openDevice({ gpu: create([]) as unknown as GPU });
const compiler = await Compiler.load();
const model = new Gpt({ vocabulary, width: 64, layers: 2, heads: 4, context, isTied: false });
const trainer = await Trainer.create(model, nextTokenLoss, { device, compiler, optimizer: adam({ lr: 1e-3 }) });
const ids = tensor(Int32Array.from({ length: batch * context }, (_, i) => (i * 7919 + ((i * i) % 31)) % vocabulary), [batch, context]);
const loaded = performance.now() - began;

const step = async () => {
  const start = performance.now();
  const loss = await (await trainer.step({ ids, targets: ids })).loss();
  return { loss, ms: performance.now() - start };
};
const first = await step();
const samples: number[] = [];
let last = first;
for (const end = performance.now() + seconds * 1000; performance.now() < end || samples.length < 5; samples.push(last.ms)) last = await step();
samples.sort((a, b) => a - b);
const round = (ms: number) => Math.round(ms * 10) / 10;
console.log(
  JSON.stringify({
    device: device.adapterInfo.description || device.adapterInfo.device,
    load_ms: round(loaded),
    first_ms: round(first.ms),
    best_ms: round(samples[0]!),
    median_ms: round(samples[samples.length >> 1]!),
    steps: samples.length,
    first_loss: first.loss,
    last_loss: last.loss,
  }),
);
trainer.destroy();
device.destroy();
