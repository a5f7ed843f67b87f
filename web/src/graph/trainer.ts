import { asOptions, asSeed, described } from "../checks.js";
import { type CompilerClient, openCompiler } from "../compiler/client.js";
import { type CheckOptions, Compiler, describeDevice, graphsRequest } from "../compiler/compiler.js";
import type { CompilerSource } from "../compiler/module.js";
import { openDevice } from "../device.js";
import { GraphError, NotFiniteError, UsageError } from "../errors.js";
import { Program } from "../program.js";
import type { RunResult } from "../result.js";
import type { Input, RunOptions, Session } from "../session.js";
import { output } from "./functions.js";
import { type Batch, type InputSpecs, type Inputs, declareInputs, signature, specsOf } from "./inputs.js";
import { type Optimizer, adamW } from "./optimizer.js";
import { type Parameter, assignPaths } from "./parameter.js";
import { Tensor, TracedGraph } from "./tracing.js";

/** Computes a scalar from a model and the inputs, all of which it must use. */
export type Loss<M, I extends Inputs = Inputs> = (model: M, inputs: I) => Tensor;
/** Computes a tensor, which becomes the output "output", or several by name. */
export type Forward<M, I extends Inputs = Inputs> = (model: M, inputs: I) => Tensor | Readonly<Record<string, Tensor>>;

export interface TrainerOptions extends CheckOptions {
  readonly optimizer?: Optimizer;
  /** By default `openDevice()`. A device that the trainer opened is destroyed with it. */
  readonly device?: GPUDevice;
  /** The WebGPU implementation: under Node `create([])` of npm webgpu. */
  readonly gpu?: GPU;
  /** For initial values and random ops. */
  readonly seed?: number | bigint;
  /** In mixed precision, products have f16 operands; the device needs shader-f16. */
  readonly precision?: "full" | "mixed_f16";
  /** The compiler, or the location of jerboa.wasm; by default in this package. In a page it compiles in a worker. */
  readonly compiler?: Compiler | CompilerSource;
}

/** The result of a step. */
export interface StepResult {
  /** Updates so far, including this one. */
  readonly step: number;
  /** Waits for the device. */
  loss(): Promise<number>;
  /** The outputs "loss" and "lr", and the requested captures. */
  readonly outputs: RunResult;
}

/**
 * Trains a model: gives its parameters their names, and compiles a step for the shapes of the first batch, in C++, for
 * the device that it runs on. A batch of other shapes compiles another step over the same parameters.
 *
 *     const trainer = await Trainer.create(new Gpt(), (gpt, { ids, targets }) => mean(crossEntropy(gpt.call(ids), targets)));
 *     const { step, loss } = await trainer.step({ ids, targets });
 *     await writeFile("model.safetensors", await trainer.save());
 */
export class Trainer<M extends object, I extends Inputs = Inputs> {
  private session: Session | undefined;
  private readonly compiling = new Map<string, Promise<void>>();
  private work: Promise<unknown> = Promise.resolve();
  private done = 0;
  private loaded: Uint8Array | undefined;
  private worker: Promise<CompilerClient> | undefined;

  private constructor(
    readonly model: M,
    readonly parameters: readonly Parameter[],
    readonly device: GPUDevice,
    private readonly loss: Loss<M, I>,
    private readonly compiler: Compiler,
    private readonly options: TrainerOptions,
  ) {}

  /** Throws UsageError if the model or the loss is invalid, and DeviceError if there is no WebGPU. */
  static async create<M extends object, I extends Inputs = Inputs>(model: M, loss: Loss<M, I>, options: TrainerOptions = {}): Promise<Trainer<M, I>> {
    const given = asOptions(options, "the options of a Trainer");
    if (typeof loss !== "function") throw new UsageError(`a loss is a function of the model and its inputs, not ${described(loss)}`);
    asSeed(given.seed ?? 0);
    const parameters = assignPaths(model);
    if (parameters.length === 0) throw new UsageError("the model has no parameters: keep modules in its fields");
    const compiler = given.compiler instanceof Compiler ? given.compiler : await Compiler.load(given.compiler);
    return new Trainer(model, parameters, given.device ?? (await openDevice({ gpu: given.gpu })), loss, compiler, options);
  }

  /** The number of updates so far. */
  get steps(): number {
    return this.done;
  }

  /** Compiles the step for batches of these shapes, and creates the parameters. */
  prepare(batch: Batch): Promise<void> {
    const specs = specsOf(this.withoutRate(batch));
    return this.ensure(`step ${signature(specs)}`, () => this.trainingGraph(specs));
  }

  /** Resolves when the device has accepted the step; its loss waits until it is done. */
  async step(batch: Batch, options: RunOptions = {}): Promise<StepResult> {
    const entry = `step ${signature(specsOf(this.withoutRate(batch)))}`;
    await this.prepare(batch);
    const running = this.session!.submit(entry, batch, options);
    const step = ++this.done; // before anything is awaited: steps are counted in the order in which they are submitted
    const outputs = await running.catch((error: unknown) => {
      // A check has failed, so that the step has changed nothing.
      if (error instanceof NotFiniteError || error instanceof UsageError) --this.done;
      throw error;
    });
    return { step, outputs, loss: () => outputs.number("loss") };
  }

  /**
   * A function of the model in evaluation mode, over the parameters that are being trained. Without specs it is compiled
   * for the shapes that it is called with.
   */
  compileForward<J extends Inputs = Inputs>(forward: Forward<M, J>, specs?: InputSpecs): ForwardPass {
    const number = ++this.forwards;
    return new ForwardPass(async (inputs) => {
      const found = specs ?? specsOf(inputs as Batch);
      const entry = `forward ${number} ${signature(found)}`;
      await this.ensure(entry, () => this.forwardGraph(forward, found));
      return this.session!.run(entry, inputs);
    });
  }
  private forwards = 0;

  /** Parameters and optimizer state as safetensors, for `load` here and Trainer::load in the C++ library. */
  async save(): Promise<Uint8Array<ArrayBuffer>> {
    if (this.session === undefined) throw new UsageError("there is nothing to save yet: call step or prepare(batch) first");
    return this.session.save();
  }

  /** Loads parameters, or a checkpoint with the optimizer's state, and continues from there. */
  async load(bytes: Uint8Array): Promise<void> {
    if (this.session === undefined) {
      this.loaded = bytes; // loaded with the first program, which knows the shapes
      return;
    }
    await this.settled();
    this.session.load(bytes);
    await this.readStep();
  }

  /** Resets to initial values, from the same seed or another. */
  async reset(seed?: number | bigint): Promise<void> {
    await this.settled();
    this.session?.reset(seed);
    this.done = 0;
  }

  /** Frees the device memory. */
  destroy(): void {
    this.session?.destroy();
    void this.worker?.then((worker) => worker.close());
    if (this.options.device === undefined) this.device.destroy();
  }

  private get rateInput(): string | undefined {
    const rate = this.options.optimizer?.lr;
    return typeof rate === "object" && "input" in rate ? rate.input : undefined;
  }

  // The learning rate is an input of the optimizer, not of the loss.
  private withoutRate(batch: Batch): Batch {
    const { rateInput } = this;
    if (rateInput === undefined || typeof batch !== "object" || batch === null) return batch;
    if (!(rateInput in batch)) throw new UsageError(`the batch has no ${rateInput}, the learning rate that the optimizer expects from the host`);
    const { [rateInput]: _, ...rest } = batch;
    return rest;
  }

  private async settled(): Promise<void> {
    await this.work.catch(() => undefined);
  }

  // Adds programs one at a time, each only once.
  private ensure(entry: string, graph: () => unknown): Promise<void> {
    let made = this.compiling.get(entry);
    if (made === undefined) {
      made = this.settled().then(() => this.addProgram(entry, graph()));
      this.work = made;
      this.compiling.set(entry, made);
      made.catch(() => this.compiling.delete(entry));
    }
    return made;
  }

  private async addProgram(entry: string, graph: unknown): Promise<void> {
    const program = await Program.load(this.device, await this.compile({ [entry]: graph }));
    if (this.session !== undefined) return program.addTo(this.session);
    this.session = await program.createSession({ seed: this.options.seed ?? 0, parameters: this.loaded });
    if (this.loaded !== undefined) await this.readStep();
    this.loaded = undefined;
  }

  // Graphs are built in this thread, but compiling them takes long and must not block a page.
  private async compile(entries: Readonly<Record<string, unknown>>): Promise<Uint8Array> {
    const device = describeDevice(this.device);
    const { compiler } = this.options;
    const request = graphsRequest(entries, device, this.options);
    if (compiler instanceof Compiler || globalThis.document === undefined) return this.compiler.module.bytes("jerboa_compile_graphs", request);
    this.worker ??= openCompiler(compiler);
    return (await this.worker).call("bytes", "jerboa_compile_graphs", request);
  }

  private async readStep(): Promise<void> {
    if (this.session!.stateNames.includes("step")) this.done = (await this.session!.download("step")).data[0]!;
  }

  private traced<T>(isTraining: boolean, body: (graph: TracedGraph) => T): T {
    const graph = new TracedGraph(this.compiler.module, isTraining);
    try {
      return body(graph);
    } finally {
      graph.free();
    }
  }

  private trainingGraph(specs: InputSpecs): unknown {
    return this.traced(true, (graph) => {
      graph.trace(() => {
        const loss = this.loss(this.model, declareInputs<I>(specs));
        if (!(loss instanceof Tensor)) throw new GraphError(`the loss is not a tensor: its function returned ${described(loss)}`);
        output("loss", loss);
      });
      return graph.training({ optimizer: this.options.optimizer ?? adamW(), precision: this.options.precision });
    });
  }

  private forwardGraph<J extends Inputs>(forward: Forward<M, J>, specs: InputSpecs): unknown {
    return this.traced(false, (graph) => {
      graph.trace(() => {
        const given = forward(this.model, declareInputs<J>(specs));
        const outputs = given instanceof Tensor ? { output: given } : given;
        for (const [name, tensor] of Object.entries(outputs ?? {})) output(name, tensor);
      });
      return graph.forward({ precision: this.options.precision });
    });
  }
}

/** A function of a model, compiled on first use. */
export class ForwardPass {
  constructor(private readonly runner: (inputs: Readonly<Record<string, Input>>) => Promise<RunResult>) {}

  run(inputs: Readonly<Record<string, Input>>): Promise<RunResult> {
    return this.runner(inputs);
  }
}
