import { type CompilerClient } from "../src/compiler/client.js";
import { describeDevice } from "../src/compiler/compiler.js";
import { FileError, Program, type Session, UsageError, readSafetensors, tensor } from "../src/index.js";
import { statePrefix } from "../src/session.js";

// A model of bytes, compiled for a device: runs training steps and continues texts.

/** Graphs to compile, or a compiled program. */
export interface ModelSource {
  readonly name: string;
  readonly graphs?: Readonly<Record<string, unknown>> | undefined;
  readonly program?: Uint8Array<ArrayBuffer> | undefined;
  readonly parameters?: Uint8Array<ArrayBuffer> | undefined;
  /** The length of the learning rate's schedule. */
  readonly steps?: number | undefined;
  /** Identifies the model, so that a checkpoint is not loaded into another one. */
  readonly fingerprint: string;
}

/** How a byte of a text was chosen. */
export interface Choice {
  readonly byte: number;
  /** The probability of every byte, before temperature and top-k. */
  readonly probabilities: Float32Array;
  /** The position of the first byte that the model saw. */
  readonly from: number;
  /** How much each head of each layer attended to each byte that the model saw. */
  readonly attention: readonly (readonly Float32Array[])[];
}

export interface StepResult {
  readonly loss: number;
  readonly rate: number | undefined;
}

const entriesUsed = ["step", "decode"] as const;
const maxSteps = 1e7;
const sampling = { temperature: 0.8, top_k: 40 };

export class Trainee {
  private constructor(
    readonly session: Session,
    readonly source: ModelSource,
    /** The number of windows in a step, and their length in bytes. */
    readonly batch: number,
    readonly context: number,
    readonly kernels: number,
    private readonly captures: readonly string[],
    private readonly compiler: CompilerClient,
    private readonly sampler: number,
  ) {}

  /** Calls `report` with the current activity. */
  static async compile(device: GPUDevice, source: ModelSource, compiler: CompilerClient, report: (doing: string) => void): Promise<Trainee> {
    let bytes = source.program;
    if (source.graphs !== undefined) {
      report("Compiling");
      const entries = Object.fromEntries(entriesUsed.map((name) => [name, source.graphs![name]]));
      bytes = await compiler.call("bytes", "jerboa_compile_graphs", JSON.stringify({ device: describeDevice(device), entries }));
    }
    if (bytes === undefined) throw new UsageError(`${source.name} has neither graphs nor a program`);
    if (source.parameters !== undefined) checkSteps(source.parameters);
    const program = await Program.load(device, bytes);
    const step = program.entries.find((entry) => entry.name === "step");
    const decode = program.entries.find((entry) => entry.name === "decode");
    const ids = step?.inputs.find((input) => input.name === "ids");
    if (ids === undefined || ids.shape.length !== 2 || decode === undefined)
      throw new UsageError("this page trains programs with an entry step, over ids[batch, length] and targets, and an entry decode");
    const [batch, context] = ids.shape.map((dim) => dim.evaluate(new Map())) as [number, number];
    const kernels = new Set([step!, decode].flatMap((entry) => entry.steps.map((one) => one.shader?.source))).size;
    report(`Preparing ${kernels} kernels`);
    const session = await program.createSession({ entries: [...entriesUsed], ...(source.parameters === undefined ? {} : { parameters: source.parameters }) });
    const captures = decode.captures.map((capture) => capture.name).filter((name) => name.startsWith("attention"));
    const seed = Math.floor(Math.random() * 2 ** 31);
    const sampler = await compiler.call("handle", "jerboa_sampler_create", JSON.stringify({ sampling: { ...sampling, seed } }), 0);
    return new Trainee(session, source, batch, context, kernels, captures, compiler, sampler);
  }

  /** The number of updates so far. */
  async steps(): Promise<number> {
    return this.session.stateNames.includes("step") ? (await this.session.download("step")).data[0]! : 0;
  }

  /** Throws FileError before anything changes. */
  load(checkpoint: Uint8Array<ArrayBuffer>): void {
    checkSteps(checkpoint);
    this.session.load(checkpoint);
  }

  async step(inputs: Parameters<Session["run"]>[1]): Promise<StepResult> {
    const out = await this.session.run("step", inputs);
    const rate = out.names.includes("lr") ? await out.number("lr") : undefined;
    return { loss: await out.number("loss"), rate };
  }

  /** Samples the byte after these, of which the model sees the last `context`. */
  async next(bytes: readonly number[]): Promise<Choice> {
    const from = Math.max(0, bytes.length - this.context);
    const window = Int32Array.from(bytes.slice(from));
    const out = await this.session.run("decode", { ids: tensor(window, [1, window.length]) }, { captures: this.captures });
    const logits = (await out.read("output")).data as Float32Array;
    const byte = await this.compiler.call("handle", "jerboa_sampler_sample", this.sampler, logits);
    const attention = await Promise.all(this.captures.map(async (name) => lastRows(await out.read(name))));
    return { byte, probabilities: softmax(logits), from, attention };
  }

  destroy(): void {
    void this.compiler.call("number", "jerboa_sampler_free", this.sampler).catch(() => undefined);
    this.session.destroy();
  }
}

/** The page keeps a loss for each step. Throws FileError if the checkpoint's step is out of range. */
export function checkSteps(checkpoint: Uint8Array<ArrayBuffer>): void {
  const step = readSafetensors(checkpoint).tensors.get(`${statePrefix}step`)?.data[0] ?? 0;
  if (!Number.isSafeInteger(step) || step < 0 || step > maxSteps)
    throw new FileError(`the checkpoint is of step ${step}, but must be of one from 0 to ${maxSteps.toLocaleString("en")}`);
}

// The attention of the last position, by head, from [1, heads, time, time].
function lastRows({ shape, data }: { readonly shape: readonly number[]; readonly data: ArrayLike<number> }): Float32Array[] {
  const [, heads, time] = shape as [number, number, number];
  return Array.from({ length: heads }, (_, head) => (data as Float32Array).slice((head + 1) * time * time - time, (head + 1) * time * time));
}

/** For display; the compiler library has its own for sampling. */
function softmax(logits: Float32Array): Float32Array {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = logits.map((logit) => Math.exp(logit - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}
