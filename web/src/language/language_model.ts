import { asJson, asOptions } from "../checks.js";
import { readBundle, writeBundle } from "../compiler/bundle.js";
import { type CompilerClient, Moved, openCompiler } from "../compiler/client.js";
import { describeDevice } from "../compiler/compiler.js";
import type { CompilerSource } from "../compiler/module.js";
import { openDevice } from "../device.js";
import { JerboaError, OutOfMemoryError, UsageError } from "../errors.js";
import { Program } from "../program.js";
import type { RunResult } from "../result.js";
import type { Session } from "../session.js";
import { type DType, type Tensor, bytesOf, fromBytes } from "../tensor.js";
import { unlessAborted } from "./aborting.js";
import { ModelFolder, weightsAsStored, withModelLock } from "./model_cache.js";
import { type LoadedFile, filesKey, filesOf } from "./model_files.js";
import { type ModelFiles, type ModelSource, sourceOf } from "./source.js";
import { type FinishReason, TextStream, type TokenLogprobs } from "./streams.js";
import { type GenerateOptions, requestRow } from "./text_request.js";
import { type ParameterRead, loadWeights } from "./weights.js";

/** The progress of loading. */
export interface LoadProgress {
  /** "waiting": another tab is loading the same model into the shared cache. */
  readonly phase: "waiting" | "files" | "compiling" | "weights" | "ready";
  /** Bytes of the checkpoint, in the phase "weights". */
  readonly loaded: number;
  readonly total: number;
}

export interface LoadOptions {
  /** The type to store matrices in; by default the checkpoint's. */
  readonly weights?: "f32" | "f16" | "bf16" | "int8" | "int4";
  /** The maximum number of tokens in a text; by default the model's limit, but at most 4096. */
  readonly context?: number;
  /** The maximum number of texts that are generated at once; fewer need less memory. By default 4. */
  readonly sequences?: number;
  readonly onProgress?: (progress: LoadProgress) => void;
  /** Ends loading at any time. */
  readonly signal?: AbortSignal;
  /** By default the best one that the browser offers. */
  readonly device?: GPUDevice;
  /** The WebGPU implementation: under Node `create([])` of npm webgpu. */
  readonly gpu?: GPU;
  /** The location of jerboa.wasm, if a bundler has moved it. */
  readonly compiler?: CompilerSource;
  /** The type of cached keys and values: int8 takes a quarter of the memory of f32. */
  readonly cacheType?: "f32" | "f16" | "int8";
  /** Whether the device draws tokens; by default not on software drivers, where sampling is faster on the host. */
  readonly deviceSampling?: boolean;
  /** Whether to keep the model in the browser's private file system; true by default. */
  readonly cache?: boolean;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export interface ChatOptions extends GenerateOptions {
  readonly tools?: readonly unknown[];
  /** Further variables of the chat template. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

interface Description {
  /** The compiler's version. */
  readonly version: string;
  readonly model_type: string;
  readonly weights: string;
  readonly parameters: number;
  readonly weight_bytes: number;
  readonly cache_bytes: number;
  readonly largest_bytes: number;
  readonly largest_allowed: number;
  readonly context: number;
  readonly vocabulary: number;
  readonly software: boolean;
  readonly has_chat_template: boolean;
  readonly entries: readonly string[];
  readonly reads: readonly ParameterRead[];
}

interface RunRow {
  readonly entry: string;
  readonly inputs: readonly { readonly name: string; readonly dtype: DType; readonly shape: readonly number[] }[];
  /** The outputs to read. */
  readonly reads: readonly string[];
}
interface StepRow {
  readonly step: number;
  readonly runs: readonly RunRow[];
}
/** A step in flight. */
interface RunningStep {
  readonly step: number;
  /** The bundle of outputs that the step reads. */
  readonly results: Promise<Uint8Array<ArrayBuffer>>;
}
interface EventRow {
  readonly id: number;
  readonly text: string;
  readonly token?: number;
  readonly logprobs?: { readonly drawn: number; readonly likeliest: readonly (readonly [number, number])[] };
  readonly finished?: FinishReason;
  readonly error?: string;
  readonly statistics?: { readonly prompt_tokens: number; readonly reused: number; readonly drafted: number; readonly accepted: number; readonly prompt_seconds: number; readonly token_seconds: number };
}

const gigabytes = (bytes: number) => `${(bytes / 2 ** 30).toFixed(bytes < 2 ** 30 ? 2 : 1)} GiB`;

const now = () => performance.now() / 1000;

/**
 * Everything that determines how parameters are made from the checkpoint; cached parameters are only valid for the same
 * text.
 */
const parametersText = ({ version, weights, reads }: Description) => JSON.stringify({ version, weights, reads });

function logprobsOf(token: number, { drawn, likeliest }: NonNullable<EventRow["logprobs"]>): TokenLogprobs {
  return { token, logprob: drawn, likeliest: likeliest.map(([other, logprob]) => ({ token: other, logprob })) };
}

/**
 * A pretrained decoder with its tokenizer, which continues texts and answers messages.
 *
 *     const model = await LanguageModel.load("https://…/SmolLM2-135M-Instruct/", { weights: "int4" });
 *     for await (const piece of model.chat("Name three rivers.")) out.textContent += piece;
 *
 * Several texts may be written at once: they are computed together.
 */
export class LanguageModel {
  /** The conversation of chat(); set it to start with a system message, or to continue an earlier conversation. */
  conversation: ChatMessage[] = [];
  private readonly texts = new Map<number, { readonly stream: TextStream; text: string; readonly tokens: number[]; readonly logprobs: TokenLogprobs[] | undefined }>();
  private readonly compiling = new Map<string, Promise<void>>();
  private submitted: Promise<void> = Promise.resolve();
  private isDriven = false;
  private disposed = false;

  private constructor(
    private readonly client: CompilerClient,
    private readonly language: number,
    private readonly description: Description,
    private readonly device: GPUDevice,
    private readonly ownsDevice: boolean,
  ) {}
  private session!: Session;

  /**
   * From a folder's address, which ends with the model's name, or from files that a user picked or dropped. A model that
   * does not fit into the device's memory is refused before its weights are loaded.
   */
  static async load(files: ModelFiles, options: LoadOptions = {}): Promise<LanguageModel> {
    const given = asOptions(options, "the options of LanguageModel.load");
    const source = sourceOf(files);
    const { signal } = given;
    signal?.throwIfAborted();
    const isKept = given.cache !== false && /^https?:/.test(source.name);
    try {
      if (!isKept) return await LanguageModel.loadAlone(source, undefined, given);
      const load = async () => LanguageModel.loadAlone(source, await ModelFolder.open(source.name, given.weights ?? weightsAsStored), given);
      return await withModelLock(source.name, load, { signal, onWait: () => given.onProgress?.({ phase: "waiting", loaded: 0, total: 0 }) });
    } catch (error) {
      signal?.throwIfAborted(); // takes precedence over errors that the abort caused
      throw error;
    }
  }

  private static async loadAlone(source: ModelSource, folder: ModelFolder | undefined, options: LoadOptions): Promise<LanguageModel> {
    const { signal } = options;
    const report = (phase: LoadProgress["phase"], loaded = 0, total = 0) => options.onProgress?.({ phase, loaded, total });
    report("files");
    const opening = { client: openCompiler(options.compiler), device: options.device === undefined ? openDevice({ gpu: options.gpu }) : Promise.resolve(options.device) };
    for (const one of Object.values(opening)) one.catch(() => undefined); // awaited later: errors in the files come first
    let model: LanguageModel | undefined;
    try {
      const loaded = await unlessAborted(filesOf(source, folder, signal), signal);
      const [client, device] = await unlessAborted(Promise.all([opening.client, opening.device]), signal);
      model = await unlessAborted(LanguageModel.create(loaded, client, device, options), signal);
      report("compiling");
      await unlessAborted(model.allocate(), signal);
      const onBytes = (bytes: number, total: number) => report("weights", bytes, total);
      const { language, session, description } = model;
      await folder?.keepParametersOf(parametersText(description), filesKey);
      signal?.throwIfAborted();
      // In parallel, so that the device, the network and the compiler are all busy.
      const weights = loadWeights({ client, language, source, folder, session, signal, onBytes }, description.reads);
      await unlessAborted(Promise.all([weights, ...description.entries.map((entry) => model!.compile(entry))]), signal);
      await folder?.markComplete();
      report("ready");
      return model;
    } catch (error) {
      if (model !== undefined) model.dispose();
      else {
        void opening.client.then((client) => client.close(), () => undefined);
        if (options.device === undefined) void opening.device.then((device) => device.destroy(), () => undefined);
      }
      await folder?.close(); // a load that was given up must not write into the folder of the next one
      throw error;
    }
  }

  /** Creates a model without device memory; refuses one that cannot fit. */
  private static async create(files: readonly LoadedFile[], client: CompilerClient, device: GPUDevice, options: LoadOptions): Promise<LanguageModel> {
    const value = {
      files: files.map(({ name, size }) => ({ name, size })),
      device: describeDevice(device),
      sequences: options.sequences ?? 4,
      weights: options.weights,
      context: options.context,
      cache: options.cacheType,
      device_sampling: options.deviceSampling,
    };
    const language = await client.call("handle", "jerboa_language_create", new Moved(writeBundle(value, files.map((file) => file.bytes))));
    const description = (await client.call("json", "jerboa_language_describe", language)) as Description;
    const { largest_bytes: largest, largest_allowed: allowed } = description;
    if (largest > allowed)
      throw new OutOfMemoryError(`the model has a tensor of ${gigabytes(largest)}, but this device allows at most ${gigabytes(allowed)}; load it with smaller weights, such as int4, or a smaller context`);
    return new LanguageModel(client, language, description, device, options.device === undefined);
  }

  // Allocates everything before anything is downloaded.
  private async allocate(): Promise<void> {
    const { weight_bytes: weights, cache_bytes: cache } = this.description;
    const first = this.description.entries[0]!;
    const program = await Program.load(this.device, await this.client.call("bytes", "jerboa_language_program", this.language, first));
    try {
      this.session = await program.createSession({ initialise: false });
      if (this.disposed) this.session.destroy();
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error;
      throw new OutOfMemoryError(`the device has no room for the model, which needs ${gigabytes(weights)} for weights and ${gigabytes(cache)} for its cache (${error.message}); load it with smaller weights, such as int4, or a smaller context`);
    }
    this.compiling.set(first, Promise.resolve());
  }

  /** The number of parameters. */
  get parameters(): number {
    return this.description.parameters;
  }
  /** The type of the matrices: "f32", "int4" …. */
  get weights(): string {
    return this.description.weights;
  }
  get weightBytes(): number {
    return this.description.weight_bytes;
  }
  /** The size of the key/value cache. */
  get cacheBytes(): number {
    return this.description.cache_bytes;
  }
  /** The maximum number of tokens in a text, including the prompt. */
  get context(): number {
    return this.description.context;
  }
  get modelType(): string {
    return this.description.model_type;
  }
  get hasChatTemplate(): boolean {
    return this.description.has_chat_template;
  }
  /** Whether the device is a driver that runs on the CPU. */
  get isSoftware(): boolean {
    return this.description.software;
  }

  /** Continues a text. */
  generate(prompt: string, options: GenerateOptions = {}): TextStream {
    return this.submit({ prompt }, options);
  }

  /** Continues a sequence of tokens. */
  continueTokens(tokens: readonly number[], options: GenerateOptions = {}): TextStream {
    return this.submit({ tokens }, options);
  }

  /** Answers a list of messages, which is not kept. */
  answer(messages: readonly ChatMessage[], options: ChatOptions = {}): TextStream {
    const { tools, variables } = options ?? {};
    return this.submit({ messages, ...(tools === undefined ? {} : { tools }), ...(variables === undefined ? {} : { variables }) }, options);
  }

  /** Answers the next message of the conversation. If it fails, the conversation stays unchanged. */
  chat(message: string, options: ChatOptions = {}): TextStream {
    const longer = [...this.conversation, { role: "user", content: message }];
    const stream = this.answer(longer, options);
    void stream.result.then(
      ({ text }) => (this.conversation = [...longer, { role: "assistant", content: text }]),
      () => undefined,
    );
    return stream;
  }

  /** The tokens of a prompt. */
  async encode(prompt: string): Promise<number[]> {
    return (await this.client.call("json", "jerboa_language_encode", this.language, JSON.stringify({ prompt }))) as number[];
  }

  /** Ends all texts and frees the device memory. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.endAll(new UsageError("the model was disposed of"));
    void this.client.call("number", "jerboa_language_free", this.language).catch(() => undefined).then(() => this.client.close());
    this.session?.destroy();
    if (this.ownsDevice) this.device.destroy();
  }

  private submit(request: object, options: GenerateOptions): TextStream {
    const signal = options?.signal;
    let id: number | undefined;
    let cancelled = false;
    const stop = () => {
      cancelled = true;
      if (id !== undefined) void this.cancel(id).catch(() => undefined); // if the compiler is gone, all texts have ended
    };
    const stream = new TextStream(stop);
    const abort = () => {
      stop();
      stream.fail(signal!.reason);
    };
    const begin = async () => {
      if (this.disposed) throw new UsageError("the model was disposed of");
      const row = { ...request, ...requestRow(options) };
      signal?.throwIfAborted();
      signal?.addEventListener("abort", abort, { once: true });
      const submitted = (await this.client.call("json", "jerboa_language_submit", this.language, asJson(row, "what a text is asked for"), now())) as { id: number };
      id = submitted.id;
      this.texts.set(id, { stream, text: "", tokens: [], logprobs: options.logprobs === undefined ? undefined : [] });
      if (cancelled) await this.cancel(id);
      void this.drive();
    };
    begin().catch((error: unknown) => stream.fail(error));
    void stream.result.catch(() => undefined).then(() => signal?.removeEventListener("abort", abort));
    return stream;
  }

  private async cancel(id: number): Promise<void> {
    if (this.disposed || !this.texts.has(id)) return;
    this.deliver((await this.client.call("json", "jerboa_language_cancel", this.language, id, now())) as EventRow[]);
  }

  /** Runs the compiler's steps and returns their results to it, as long as there are any. */
  private async drive(): Promise<void> {
    if (this.isDriven) return;
    this.isDriven = true;
    const running: RunningStep[] = [];
    let hasFailed = false;
    try {
      while (!this.disposed) {
        const next = await this.client.call("bytes", "jerboa_language_next", this.language, now());
        if (next.length > 0) {
          const { value, parts } = readBundle(next);
          const results = this.run(value as StepRow, parts);
          results.catch(() => undefined);
          running.push({ step: (value as StepRow).step, results });
          continue;
        }
        const oldest = running.shift();
        if (oldest === undefined) break;
        await this.complete(oldest);
      }
    } catch (error) {
      await this.abandon(running, error);
      hasFailed = true;
    } finally {
      this.isDriven = false;
    }
    if (hasFailed && !this.disposed && this.texts.size > 0) void this.drive(); // texts submitted meanwhile
  }

  private async complete({ step, results }: RunningStep): Promise<void> {
    try {
      this.deliver((await this.client.call("json", "jerboa_language_complete", this.language, step, new Moved(await results), now())) as EventRow[]);
    } catch (error) {
      await this.failStep(step, error);
    }
  }

  private async failStep(step: number, error: unknown): Promise<void> {
    const isFull = error instanceof OutOfMemoryError ? 1 : 0;
    this.deliver((await this.client.call("json", "jerboa_language_fail", this.language, step, (error as Error).message, isFull, now())) as EventRow[], error);
  }

  /**
   * Ends all texts with this error. The compiler discards them and the steps in flight, so that later texts can be
   * generated.
   */
  private async abandon(running: readonly RunningStep[], error: unknown): Promise<void> {
    const ids = [...this.texts.keys()];
    this.endAll(error);
    if (this.disposed) return;
    try {
      for (const { step, results } of running) {
        await results.catch(() => undefined);
        await this.failStep(step, error);
      }
      for (const id of ids) await this.client.call("json", "jerboa_language_cancel", this.language, id, now());
    } catch {
      // The compiler itself has failed: its next call throws.
    }
  }

  private async run(step: StepRow, parts: readonly Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> {
    // Steps are submitted in order, even if one has to be compiled first.
    const submitted = this.submitted.then(() => this.submitRuns(step, parts));
    this.submitted = submitted.then(
      () => undefined,
      () => undefined,
    );
    const result = await submitted;
    try {
      const { names } = result;
      const outputs = await Promise.all(names.map((name) => result.read(name)));
      return writeBundle(names, outputs.map(({ data }) => bytesOf(data)));
    } finally {
      result.destroy();
    }
  }

  /** Submits the runs of a step; returns the result of the last. */
  private async submitRuns({ runs }: StepRow, parts: readonly Uint8Array[]): Promise<RunResult> {
    let place = 0;
    let result: RunResult | undefined;
    for (const { entry, inputs, reads } of runs) {
      const tensors: Record<string, Tensor> = {};
      for (const { name, dtype, shape } of inputs) tensors[name] = fromBytes(dtype, shape, parts[place++]!);
      await this.compile(entry);
      result?.destroy();
      result = await this.session.run(entry, tensors, { outputs: reads });
    }
    return result!;
  }

  /** Compiles an entry once. */
  private compile(entry: string): Promise<void> {
    let made = this.compiling.get(entry);
    if (made === undefined) {
      made = (async () => {
        const program = await Program.load(this.device, await this.client.call("bytes", "jerboa_language_program", this.language, entry));
        await program.addTo(this.session);
      })();
      this.compiling.set(entry, made);
      made.catch(() => this.compiling.delete(entry)); // a later attempt may succeed
    }
    return made;
  }

  /** `cause` is the reason why texts have failed. */
  private deliver(events: readonly EventRow[], cause?: unknown): void {
    for (const event of events) {
      const found = this.texts.get(event.id);
      if (found === undefined) continue;
      if (event.token !== undefined) found.tokens.push(event.token);
      if (event.token !== undefined && event.logprobs !== undefined) found.logprobs?.push(logprobsOf(event.token, event.logprobs));
      found.text += event.text;
      found.stream.push(event.text);
      if (event.finished === undefined) continue;
      this.texts.delete(event.id);
      const { text, tokens, logprobs, stream } = found;
      const statistics = event.statistics!;
      if (event.finished === "failed") stream.fail(cause ?? new JerboaError(event.error ?? "the text failed"));
      else
        stream.finish({
          text,
          tokens,
          ...(logprobs === undefined ? {} : { logprobs }),
          reason: event.finished,
          promptTokens: statistics.prompt_tokens,
          reused: statistics.reused,
          drafted: statistics.drafted,
          accepted: statistics.accepted,
          promptSeconds: statistics.prompt_seconds,
          tokenSeconds: statistics.token_seconds,
        });
    }
  }

  private endAll(error: unknown): void {
    for (const { stream } of this.texts.values()) stream.fail(error);
    this.texts.clear();
  }
}
