import { CompilerModule, type CompilerSource } from "./module.js";

/** A GPUDevice or GPUAdapter in the compiler's terms. */
export interface DeviceDescription {
  readonly limits?: Readonly<Record<string, number>>;
  readonly features?: readonly string[];
  readonly info?: Readonly<Record<string, string | number | boolean>>;
}

/** The shape of a step that an entry is compiled for. */
export interface EntryShape {
  readonly rows?: number;
  /** Tokens per row; with `is_prompt`, any number up to this. */
  readonly time?: number;
  /** The number of cache blocks that a row may use. */
  readonly table?: number;
  /** The number of last positions to compute logits for; 0: all. */
  readonly outputs?: number;
  readonly is_prompt?: boolean;
  readonly drawing?: "none" | "greedy" | "sampled";
  readonly masked?: boolean;
}

/** An entry for encoders: reads whole texts of up to `time` tokens, without a cache. */
export interface EncoderShape {
  readonly encoder: true;
  readonly rows?: number;
  readonly time?: number;
  /** With a pooling, there is an output "pooled" in addition to "hidden". */
  readonly pooling?: "none" | "cls" | "last" | "mean" | "max";
  /** Normalises pooled vectors to length 1. */
  readonly normalise?: boolean;
}

export interface ModelOptions {
  readonly weights?: "f32" | "f16" | "bf16" | "int8" | "int4";
  readonly cache?: "f32" | "f16" | "int8";
  readonly blocks?: number;
  readonly block?: number;
  /** The maximum length of a text; by default that of the largest table. */
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

/** The properties of a device that the compiler needs. */
export function describeDevice(device: GPUDevice): DeviceDescription {
  const info = device.adapterInfo as unknown as Record<string, string | number | boolean | undefined> | undefined;
  return {
    limits: Object.fromEntries(limitNames.map((name) => [name, device.limits[name]])),
    features: [...device.features],
    info: Object.fromEntries(infoNames.flatMap((name) => (info?.[name] === undefined ? [] : [[name, info[name]]]))),
  };
}

/** Checks of the tensors that a program computes. A run that fails a check changes nothing. */
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

  /** Loads jerboa.wasm, by default from this package. */
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
