import { readBundle, writeBundle } from "../compiler/bundle.js";
import { type CompilerClient, openCompiler } from "../compiler/client.js";
import { describeDevice } from "../compiler/compiler.js";
import type { CompilerSource } from "../compiler/module.js";
import { openDevice } from "../device.js";
import { FileError, JerboaError, OutOfMemoryError, UsageError } from "../errors.js";
import { Program } from "../program.js";
import type { RunResult } from "../result.js";
import type { Session } from "../session.js";
import { type DType, type Tensor, bytesOf, fromBytes } from "../tensor.js";
import { ModelFolder, withModelLock } from "./model_cache.js";
import { type ModelFiles, type ModelSource, sourceOf } from "./source.js";
import { type FinishReason, TextStream } from "./streams.js";
import { type ParameterRead, loadWeights } from "./weights.js";

/** How far loading has come. */
export interface LoadProgress {
  readonly phase: "files" | "compiling" | "weights" | "ready";
  /** Bytes of the checkpoint, in the phase "weights". */
  readonly loaded: number;
  readonly total: number;
}

export interface LoadOptions {
  /** The type that matrices are stored in; by default the checkpoint's. */
  readonly weights?: "f32" | "f16" | "bf16" | "int8" | "int4";
  /** The most tokens of a text; by default the model's limit, but at most 4096. */
  readonly context?: number;
  /** How many texts are written at once at most; fewer need less memory. By default 4. */
  readonly sequences?: number;
  readonly onProgress?: (progress: LoadProgress) => void;
  readonly signal?: AbortSignal;
  /** By default the best that the browser offers. */
  readonly device?: GPUDevice;
  /** The WebGPU implementation: under Node `create([])` of npm webgpu. */
  readonly gpu?: GPU;
  /** Where jerboa.wasm is, if a bundler has moved it. */
  readonly compiler?: CompilerSource;
  /** Whether the model is kept in the browser's private file system for the next time; by default it is. */
  readonly cache?: boolean;
}

export interface Sampling {
  /** 0: always the likeliest token. */
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly seed?: number;
}

export interface GenerateOptions {
  /** By default 256. */
  readonly maxTokens?: number;
  /** By default as the model's generation_config.json recommends. */
  readonly sampling?: Sampling;
  /** The text ends before the first of these. */
  readonly stop?: readonly string[];
  /** A JSON schema that the text must satisfy. */
  readonly schema?: unknown;
  /** A regular expression that the whole text must match. */
  readonly regex?: string;
  readonly signal?: AbortSignal;
}

export interface ChatMessage {
  readonly role: string;
  readonly content: string;
}

export interface ChatOptions extends GenerateOptions {
  readonly tools?: readonly unknown[];
  /** Further names that the chat template reads. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

interface Description {
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
interface EventRow {
  readonly id: number;
  readonly text: string;
  readonly token?: number;
  readonly finished?: FinishReason;
  readonly error?: string;
  readonly statistics?: { readonly prompt_tokens: number; readonly reused: number; readonly prompt_seconds: number; readonly token_seconds: number };
}

const smallFiles = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
const otherTokenizers = ["tokenizer.model", "tokenizer.bin"];
const headerLengthBytes = 8;
const none = new Uint8Array();
const gigabytes = (bytes: number) => `${(bytes / 2 ** 30).toFixed(bytes < 2 ** 30 ? 2 : 1)} GiB`;

interface LoadedFile {
  readonly name: string;
  readonly size: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Small files whole, and of safetensors files the header. */
async function readFiles(source: ModelSource): Promise<LoadedFile[]> {
  const files: LoadedFile[] = [];
  const add = async (name: string) => {
    const bytes = await source.read(name);
    if (bytes !== undefined) files.push({ name, size: bytes.length, bytes });
    return bytes !== undefined;
  };
  if (!(await add("config.json"))) throw new FileError(`${source.name}: there is no config.json, so this is not a Hugging Face model`);
  await Promise.all(smallFiles.slice(1).map(add));
  if (!files.some((file) => file.name === "tokenizer.json")) for (const name of otherTokenizers) if (await add(name)) break;
  for (const name of await shardNames(source)) files.push(await readHeader(source, name));
  return files;
}

async function shardNames(source: ModelSource): Promise<string[]> {
  const index = await source.read("model.safetensors.index.json");
  if (index === undefined) return ["model.safetensors"];
  const { weight_map: map } = JSON.parse(new TextDecoder().decode(index)) as { weight_map?: Record<string, string> };
  if (map === undefined) throw new FileError(`${source.name}: model.safetensors.index.json has no weight_map`);
  return [...new Set(Object.values(map))].sort();
}

async function readHeader(source: ModelSource, name: string): Promise<LoadedFile> {
  const facts = await source.inspect(name);
  if (facts === undefined) throw new FileError(`${source.name}: there is no ${name}`);
  const first = await source.range(name, 0, Math.min(headerLengthBytes, facts.bytes));
  const length = first.length < headerLengthBytes ? 0n : new DataView(first.buffer).getBigUint64(0, true);
  const end = Math.min(facts.bytes, headerLengthBytes + Number(length)); // the compiler refuses what is wrong with it
  return { name, size: facts.bytes, bytes: await source.range(name, 0, end) };
}

const filesKey = "files";

/** From the cache, if they are there. */
async function filesOf(source: ModelSource, folder: ModelFolder | undefined): Promise<LoadedFile[]> {
  const cached = await folder?.get(filesKey);
  if (cached !== undefined) {
    const { value, parts } = readBundle(cached);
    return (value as readonly { name: string; size: number }[]).map(({ name, size }, i) => ({ name, size, bytes: parts[i]!.slice() }));
  }
  const files = await readFiles(source);
  await folder?.clear(); // parameters of another version
  await folder?.put(filesKey, writeBundle(files.map(({ name, size }) => ({ name, size })), files.map((file) => file.bytes)));
  return files;
}

const now = () => performance.now() / 1000;

function samplingRow(sampling: Sampling): Record<string, number> {
  const names = { temperature: "temperature", topK: "top_k", topP: "top_p", minP: "min_p", repetitionPenalty: "repetition_penalty", presencePenalty: "presence_penalty", frequencyPenalty: "frequency_penalty", seed: "seed" } as const;
  const row: Record<string, number> = {};
  for (const [key, value] of Object.entries(sampling)) {
    const name = names[key as keyof Sampling];
    if (name === undefined) throw new UsageError(`sampling has no option ${key}; there are ${Object.keys(names).join(", ")}`);
    if (value !== undefined) row[name] = value as number;
  }
  return row;
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
  /** The conversation that chat() keeps; set it to begin with a system message, or to go on with an earlier one. */
  conversation: ChatMessage[] = [];
  private readonly texts = new Map<number, { readonly stream: TextStream; text: string; readonly tokens: number[] }>();
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
    const source = sourceOf(files);
    return withModelLock(source.name, () => LanguageModel.loadAlone(source, options));
  }

  private static async loadAlone(source: ModelSource, options: LoadOptions): Promise<LanguageModel> {
    const report = (phase: LoadProgress["phase"], loaded = 0, total = 0) => options.onProgress?.({ phase, loaded, total });
    const isAddress = /^https?:/.test(source.name);
    const folder = options.cache === false || !isAddress ? undefined : await ModelFolder.open(source.name, options.weights ?? "as stored");
    report("files");
    const [loaded, client, device] = await Promise.all([
      filesOf(source, folder),
      openCompiler(options.compiler),
      options.device ?? openDevice({ gpu: options.gpu }),
    ]);
    let model: LanguageModel | undefined;
    try {
      options.signal?.throwIfAborted();
      const value = {
        files: loaded.map(({ name, size }) => ({ name, size })),
        device: describeDevice(device),
        sequences: options.sequences ?? 4,
        ...(options.weights === undefined ? {} : { weights: options.weights }),
        ...(options.context === undefined ? {} : { context: options.context }),
      };
      const language = await client.call("handle", "jerboa_language_create", writeBundle(value, loaded.map((file) => file.bytes)));
      const description = (await client.call("json", "jerboa_language_describe", language)) as Description;
      model = new LanguageModel(client, language, description, device, options.device === undefined);
      report("compiling");
      await model.allocate();
      const onBytes = (bytes: number, total: number) => report("weights", bytes, total);
      await loadWeights({ client, language, source, folder, session: model.session, signal: options.signal, onBytes }, description.reads);
      await Promise.all(description.entries.map((entry) => model!.compile(entry)));
      await folder?.markComplete();
      report("ready");
      return model;
    } catch (error) {
      if (model === undefined) {
        client.close();
        if (options.device === undefined) device.destroy();
      }
      model?.dispose();
      throw error;
    }
  }

  // Memory for everything, before anything is downloaded.
  private async allocate(): Promise<void> {
    const { largest_bytes: largest, largest_allowed: allowed, weight_bytes: weights, cache_bytes: cache } = this.description;
    if (largest > allowed)
      throw new OutOfMemoryError(`the model has a tensor of ${gigabytes(largest)}, but this device allows at most ${gigabytes(allowed)}; load it with smaller weights, such as int4, or a smaller context`);
    const first = this.description.entries[0]!;
    const program = await Program.load(this.device, await this.client.call("bytes", "jerboa_language_program", this.language, first));
    try {
      this.session = await program.createSession({ initialise: false });
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
  /** The type of the matrices: "f32", "int4" … */
  get weights(): string {
    return this.description.weights;
  }
  get weightBytes(): number {
    return this.description.weight_bytes;
  }
  /** The most tokens of a text, prompt included. */
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

  /** The answer to a list of messages, which is not kept. */
  answer(messages: readonly ChatMessage[], options: ChatOptions = {}): TextStream {
    const { tools, variables } = options;
    return this.submit({ messages, ...(tools === undefined ? {} : { tools }), ...(variables === undefined ? {} : { variables }) }, options);
  }

  /** The answer to the next message of the conversation. A message that fails leaves the conversation as it was. */
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

  /** Ends all texts and frees the memory of the device. */
  dispose(): void {
    if (this.disposed) return;
    this.disposed = true;
    this.endAll(new UsageError("the model was disposed of"));
    void this.client.call("number", "jerboa_language_free", this.language).catch(() => undefined).then(() => this.client.close());
    this.session?.destroy();
    if (this.ownsDevice) this.device.destroy();
  }

  private submit(request: object, options: GenerateOptions): TextStream {
    let id: number | undefined;
    let cancelled = false;
    const stop = () => {
      cancelled = true;
      if (id !== undefined) void this.cancel(id);
    };
    const stream = new TextStream(stop);
    const abort = () => {
      stop();
      stream.fail(options.signal!.reason);
    };
    const begin = async () => {
      if (this.disposed) throw new UsageError("the model was disposed of");
      options.signal?.throwIfAborted();
      options.signal?.addEventListener("abort", abort, { once: true });
      const { maxTokens, sampling, stop: stops, schema, regex } = options;
      const row = {
        ...request,
        ...(maxTokens === undefined ? {} : { max_tokens: maxTokens }),
        ...(sampling === undefined ? {} : { sampling: samplingRow(sampling) }),
        ...(stops === undefined ? {} : { stop: stops }),
        ...(schema === undefined ? {} : { schema }),
        ...(regex === undefined ? {} : { regex }),
      };
      const submitted = (await this.client.call("json", "jerboa_language_submit", this.language, JSON.stringify(row), now())) as { id: number };
      id = submitted.id;
      this.texts.set(id, { stream, text: "", tokens: [] });
      if (cancelled) await this.cancel(id);
      void this.drive();
    };
    begin().catch((error: unknown) => stream.fail(error));
    void stream.result.catch(() => undefined).then(() => options.signal?.removeEventListener("abort", abort));
    return stream;
  }

  private async cancel(id: number): Promise<void> {
    if (this.disposed || !this.texts.has(id)) return;
    this.deliver((await this.client.call("json", "jerboa_language_cancel", this.language, id, now())) as EventRow[]);
  }

  /** Takes steps from the compiler, runs them and hands back what came out, as long as there are any. */
  private async drive(): Promise<void> {
    if (this.isDriven) return;
    this.isDriven = true;
    try {
      const running: { readonly step: number; readonly results: Promise<readonly [Uint8Array, Uint8Array]> }[] = [];
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
        this.deliver(await this.complete(oldest.step, oldest.results));
      }
    } catch (error) {
      this.endAll(error);
    } finally {
      this.isDriven = false;
    }
  }

  private async complete(step: number, results: Promise<readonly [Uint8Array, Uint8Array]>): Promise<EventRow[]> {
    try {
      const [tokens, logits] = await results;
      return (await this.client.call("json", "jerboa_language_complete", this.language, step, tokens, logits, now())) as EventRow[];
    } catch (error) {
      const isFull = error instanceof OutOfMemoryError ? 1 : 0;
      return (await this.client.call("json", "jerboa_language_fail", this.language, step, (error as Error).message, isFull, now())) as EventRow[];
    }
  }

  private async run(step: StepRow, parts: readonly Uint8Array[]): Promise<readonly [Uint8Array, Uint8Array]> {
    // Steps are submitted in order, even if one has to be compiled first.
    const submitted = this.submitted.then(() => this.submitRuns(step, parts));
    this.submitted = submitted.then(
      () => undefined,
      () => undefined,
    );
    const result = await submitted;
    const read = async (name: string) => (result.names.includes(name) ? bytesOf((await result.read(name)).data) : none);
    const both = [await read("tokens"), await read("logits")] as const;
    result.destroy();
    return both;
  }

  /** Submits the runs of a step, and gives the result of the last. */
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
    }
    return made;
  }

  private deliver(events: readonly EventRow[]): void {
    for (const event of events) {
      const found = this.texts.get(event.id);
      if (found === undefined) continue;
      if (event.token !== undefined) found.tokens.push(event.token);
      found.text += event.text;
      found.stream.push(event.text);
      if (event.finished === undefined) continue;
      this.texts.delete(event.id);
      const { text, tokens, stream } = found;
      const statistics = event.statistics!;
      if (event.finished === "failed") stream.fail(new JerboaError(event.error ?? "the text failed"));
      else
        stream.finish({
          text,
          tokens,
          reason: event.finished,
          promptTokens: statistics.prompt_tokens,
          reused: statistics.reused,
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
