import { CompilerModule, type CompilerSource } from "./module.js";

/** A GPUDevice or GPUAdapter as the compiler sees it. */
export interface DeviceDescription {
  readonly limits?: Readonly<Record<string, number>>;
  readonly features?: readonly string[];
  readonly info?: Readonly<Record<string, string | number | boolean>>;
}

/** The shape of a step that an entry is compiled for. */
export interface EntryShape {
  readonly rows?: number;
  /** Tokens of a row; with `is_prompt` any number up to this. */
  readonly time?: number;
  /** Blocks of the cache that a row may use. */
  readonly table?: number;
  /** How many positions at the end logits are computed for; 0: all. */
  readonly outputs?: number;
  readonly is_prompt?: boolean;
  readonly drawing?: "none" | "greedy" | "sampled";
  readonly masked?: boolean;
}

/** An entry that reads whole texts of up to `time` tokens, without a cache. */
export interface EncoderShape {
  readonly encoder: true;
  readonly rows?: number;
  readonly time?: number;
  /** With one, there is an output "pooled" beside "hidden". */
  readonly pooling?: "none" | "cls" | "last" | "mean" | "max";
  /** Pooled vectors are divided by their length. */
  readonly normalise?: boolean;
}

export interface ModelOptions {
  readonly weights?: "f32" | "f16" | "bf16" | "int8" | "int4";
  readonly cache?: "f32" | "f16" | "int8";
  readonly blocks?: number;
  readonly block?: number;
  /** The longest text; by default what the largest table holds. */
  readonly context?: number;
  readonly slots?: number;
  readonly carried_rows?: number;
  readonly precision?: "full" | "mixed_f16";
  readonly device?: DeviceDescription;
  readonly entries?: readonly (EntryShape | EncoderShape)[];
}

const limitNames = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupsPerDimension",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupStorageSize",
] as const;
const infoNames = ["vendor", "architecture", "device", "description", "subgroupMinSize", "subgroupMaxSize", "isFallbackAdapter"] as const;

/** What the compiler must know about a device to compile for it. */
export function describeDevice(device: GPUDevice): DeviceDescription {
  const info = device.adapterInfo as unknown as Record<string, string | number | boolean | undefined> | undefined;
  return {
    limits: Object.fromEntries(limitNames.map((name) => [name, device.limits[name]])),
    features: [...device.features],
    info: Object.fromEntries(infoNames.flatMap((name) => (info?.[name] === undefined ? [] : [[name, info[name]]]))),
  };
}

/** What runs of a program check of the tensors that they compute. A run that fails a check changes nothing. */
export interface CheckOptions {
  /** Stops at the first tensor that holds NaN or infinity, by bit pattern, and names it. Every tensor is stored: slow. */
  readonly checkFinite?: boolean;
}

/** The request for a program of graphs by name, as jerboa_compile_graphs takes it. */
export function graphsRequest(entries: Readonly<Record<string, unknown>>, device?: DeviceDescription, checks: CheckOptions = {}): string {
  return JSON.stringify({ entries, device, check_finite: checks.checkFinite });
}

/** Turns configurations and graphs into programs, in WASM: the C++ compiler itself. */
export class Compiler {
  private constructor(readonly module: CompilerModule) {}

  /** By default from jerboa.wasm of this package. */
  static async load(source?: CompilerSource): Promise<Compiler> {
    return new Compiler(await CompilerModule.load(source));
  }

  /** The version of the C++ library. */
  get version(): string {
    return this.module.version;
  }

  /** A program with the entries of a language model, from its config.json. */
  compileModel(config: string, options: ModelOptions = {}): Uint8Array<ArrayBuffer> {
    return this.module.bytes("jerboa_compile_model", config, JSON.stringify(options));
  }

  /** A program from graphs as JSON, by name; parameters and states are shared by name. */
  compileGraphs(entries: Readonly<Record<string, unknown>>, device?: DeviceDescription, checks?: CheckOptions): Uint8Array<ArrayBuffer> {
    return this.module.bytes("jerboa_compile_graphs", graphsRequest(entries, device, checks));
  }
}
