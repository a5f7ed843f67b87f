import { Gpt, nextTokenLoss } from "../examples/gpt.js";
import { Compiler, type DeviceDescription, type ModelOptions } from "../src/compiler/compiler.js";
import { adamW, output } from "../src/graph/index.js";
import { declareInputs } from "../src/graph/inputs.js";
import { assignPaths } from "../src/graph/parameter.js";
import { type Tensor, TracedGraph } from "../src/graph/tracing.js";
import { smolLm2 } from "./smollm2.js";

// How long the compiler takes in WASM, for docs/benchmarks.md: the decode and prefill programs of a Llama of
// SmolLM2-135M's shapes, and a training step of a GPT that is as deep and wide, with 148 million parameters.
//   node dist/tools/bench_compile.js [TURNS]
// The time of the processor says more than the clock on a machine that has other work; it includes what Node's own
// compiler does beside.

const turns = Number(process.argv[2] ?? 5);
const device: DeviceDescription = {
  limits: { maxBufferSize: 2 ** 32, maxStorageBufferBindingSize: 2 ** 31, maxStorageBuffersPerShaderStage: 10, maxComputeWorkgroupStorageSize: 32768 },
  features: ["shader-f16", "subgroups"],
  info: { subgroupMinSize: 32, subgroupMaxSize: 32 },
};
const sizes = { vocabulary: smolLm2.vocab_size, width: smolLm2.hidden_size, layers: smolLm2.num_hidden_layers, heads: smolLm2.num_attention_heads, context: 1024 };
const config = JSON.stringify(smolLm2);

const compiler = await Compiler.load();

function compileModel(): number {
  const options: ModelOptions = {
    weights: "int4",
    cache: "f16",
    blocks: 64,
    device,
    entries: [
      { table: 32, drawing: "sampled" },
      { time: 512, table: 32, is_prompt: true, drawing: "sampled" },
    ],
  };
  return compiler.compileModel(config, options).length;
}

function compileTrainingStep(): number {
  const gpt = new Gpt(sizes);
  assignPaths(gpt);
  const graph = new TracedGraph(compiler.module, true);
  try {
    graph.trace(() => {
      const spec = { shape: [4, sizes.context], dtype: "i32" } as const;
      output("loss", nextTokenLoss(gpt, declareInputs<{ ids: Tensor; targets: Tensor }>({ ids: spec, targets: spec })));
    });
    return compiler.compileGraphs({ step: graph.training({ optimizer: adamW() }) }, device).length;
  } finally {
    graph.free();
  }
}

interface Sample {
  readonly seconds: number;
  readonly processor: number;
  readonly bytes: number;
}

function measured(body: () => number): Sample {
  const [began, before] = [performance.now(), process.cpuUsage()];
  const bytes = body();
  const { user, system } = process.cpuUsage(before);
  return { seconds: Math.round(performance.now() - began) / 1000, processor: Math.round((user + system) / 1000) / 1000, bytes };
}

/** The first time is what a visitor waits for: the engine has not yet optimised the compiler's code. */
for (const [name, body] of Object.entries({ "decode and prefill": compileModel, "training step": compileTrainingStep })) {
  const first = measured(body);
  const later = Array.from({ length: turns }, () => measured(body)).sort((a, b) => a.processor - b.processor);
  const median = later[later.length >> 1]!;
  console.log(
    JSON.stringify({ name, program_bytes: first.bytes, first_s: first.seconds, first_processor_s: first.processor, median_s: median.seconds, median_processor_s: median.processor }),
  );
}
