import { type Bounds, type Dim, noSymbols, parseDim, evaluateShape } from "./dim.js";
import { FileError } from "./errors.js";
import type { Init } from "./initialize.js";
import { type JsonObject, asFlag, asIndex, asList, asNumber, asObject, asText, parseJson } from "./json_fields.js";
import { splitHeader } from "./safetensors.js";
import { type DType, byteCount, dtypes } from "./tensor.js";

// A program file: "JERBOAP4", the length of a JSON header as 8 bytes, the header, the constants' bytes. Of the header
// a GPU host reads the storage, the buffers and the steps; the kernels behind them are for other hosts.

/** A parameter or state that entries share and that stays between runs. */
export interface PersistentTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly isParameter: boolean;
  readonly init: Init;
}

/** What goes in or comes out of an entry. */
export interface Port {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** A tensor that can be read after a run: where its elements stand in a buffer. */
export interface Readable extends Port {
  readonly buffer: number;
  readonly offset: Dim;
  readonly strides: readonly Dim[];
}

/** A pool holds parameters or states side by side; those are buffers within it. */
export type BufferPlace = "storage" | "input" | "constant" | "arena" | "pool";
export interface ProgramBuffer {
  readonly where: BufferPlace;
  readonly name: string;
  readonly constant: Uint8Array | undefined;
  readonly arena: number;
  /** In the arena or pool. */
  readonly offset: number;
  readonly bytes: number;
  /** The pool that a parameter or state stands in, or -1. */
  readonly pool: number;
}

export interface Binding {
  readonly buffer: number;
  readonly offset: number;
  readonly bytes: number;
  readonly written: boolean;
  /** Bound for reading and writing, although it is only read. */
  readonly readWrite: boolean;
}

export interface ShaderSource {
  readonly name: string;
  readonly source: string;
}

/** One dispatch of a shader, or, without one, a copy from the first binding to the second. */
export interface Step {
  readonly shader: ShaderSource | undefined;
  readonly bindings: readonly Binding[];
  readonly sizes: readonly Dim[];
  readonly workgroups: Dim;
  readonly label: string;
}

export interface Entry {
  readonly name: string;
  readonly inputs: readonly Port[];
  readonly outputs: readonly Readable[];
  readonly captures: readonly Readable[];
  readonly buffers: readonly ProgramBuffer[];
  /** Their sizes in bytes. */
  readonly arenas: readonly number[];
  readonly steps: readonly Step[];
  readonly usesF16: boolean;
  readonly usesSubgroups: boolean;
  readonly usesSubgroupMatrices: boolean;
}

export interface ProgramFile {
  readonly storage: readonly PersistentTensor[];
  readonly entries: readonly Entry[];
}

const magic = "JERBOAP4";
const places: readonly BufferPlace[] = ["storage", "input", "constant", "arena", "pool"];
const initKinds = ["constant", "normal", "uniform"] as const;

function asDType(value: unknown, what: string): DType {
  const found = dtypes.find((dtype) => dtype === value);
  if (found === undefined) throw new FileError(`${what}: unknown type ${JSON.stringify(value)}`);
  return found;
}

class Reader {
  constructor(
    private readonly bounds: Bounds,
    private readonly blobs: Uint8Array,
  ) {}

  private shape(value: unknown, what: string): Dim[] {
    return asList(value, `the shape of ${what}`).map((size) => parseDim(size, this.bounds));
  }

  port(value: unknown): Port {
    const row = asObject(value, "a tensor");
    const name = asText(row["name"], "a tensor's name");
    return { name, dtype: asDType(row["dtype"], name), shape: this.shape(row["shape"], name) };
  }

  persistent(value: unknown): PersistentTensor {
    const row = asObject(value, "a tensor of the storage");
    const { name, dtype, shape } = this.port(row);
    const init: Init = {
      kind: initKinds[asIndex(row["init_kind"], `${name}: init_kind`, initKinds.length)]!,
      mean: asNumber(row["init_mean"], `${name}: init_mean`),
      width: asNumber(row["init_width"], `${name}: init_width`),
    };
    const isParameter = asFlag(row["is_param"], `${name}: is_param`);
    return { name, dtype, shape: evaluateShape(shape, noSymbols), isParameter, init };
  }

  private constant(value: unknown): Uint8Array {
    const row = asObject(value, "a constant");
    const shape = asList(row["shape"], "a constant's shape").map((size) => asIndex(size, "a constant's size"));
    const offset = asIndex(row["offset"], "a constant's place");
    const bytes = byteCount(asDType(row["dtype"], "a constant"), shape);
    if (!(offset + bytes <= this.blobs.length)) throw new FileError("a constant is cut off");
    return this.blobs.subarray(offset, offset + bytes);
  }

  private buffer(value: unknown, arenas: readonly number[], constants: readonly Uint8Array[], count: number): ProgramBuffer {
    const row = asObject(value, "a buffer");
    const name = asText(row["name"], "a buffer's name");
    const where = places[asIndex(row["where"], `${name}: where`, places.length)]!;
    const bytes = asIndex(row["bytes"], `${name}: bytes`);
    if (where === "arena") {
      const arena = asIndex(row["arena"], `${name}: arena`, arenas.length);
      const offset = asIndex(row["offset"], `${name}: offset`);
      if (offset + bytes > arenas[arena]!) throw new FileError(`${name} stands outside its arena`);
      return { where, name, constant: undefined, arena, offset, bytes, pool: -1 };
    }
    if (where === "storage") {
      const pool = asIndex(row["within"], `${name}: within`, count, -1);
      const offset = pool < 0 ? 0 : asIndex(row["inside"], `${name}: inside`);
      return { where, name, constant: undefined, arena: -1, offset, bytes, pool };
    }
    if (where !== "constant") return { where, name, constant: undefined, arena: -1, offset: 0, bytes, pool: -1 };
    const constant = constants[asIndex(row["constant"], `${name}: constant`, constants.length)]!;
    if (constant.length !== bytes) throw new FileError(`${name} does not fit what it holds`);
    return { where, name, constant, arena: -1, offset: 0, bytes, pool: -1 };
  }

  private readable(value: unknown, buffers: readonly ProgramBuffer[]): Readable {
    const port = this.port(value);
    const row = asObject(value, port.name);
    const strides = this.shape(row["strides"], port.name);
    if (strides.length !== port.shape.length) throw new FileError(`${port.name} has not one stride for each size`);
    return {
      ...port,
      buffer: asIndex(row["buffer"], `${port.name}: buffer`, buffers.length),
      offset: parseDim(row["offset"], this.bounds),
      strides,
    };
  }

  private step(value: unknown, shaders: readonly ShaderSource[], buffers: readonly ProgramBuffer[], arenas: readonly number[]): Step {
    const row = asObject(value, "a step");
    const label = asText(row["label"], "a step's label");
    const number = asIndex(row["shader"], `${label}: shader`, shaders.length, -1);
    const bindings = asList(row["bindings"], `${label}: bindings`).map((item): Binding => {
      const own = asObject(item, `${label}: a binding`);
      const binding = {
        buffer: asIndex(own["buffer"], `${label}: buffer`, buffers.length),
        offset: asIndex(own["offset"], `${label}: offset`),
        bytes: asIndex(own["bytes"], `${label}: bytes`),
        written: asFlag(own["written"], `${label}: written`),
        readWrite: asFlag(own["read_write"], `${label}: read_write`),
      };
      const buffer = buffers[binding.buffer]!;
      const there = buffer.where === "arena" ? arenas[buffer.arena]! : (buffers[buffer.pool] ?? buffer).bytes;
      if (buffer.offset + binding.offset + binding.bytes > allocated(there))
        throw new FileError(`${label}: ${buffer.name} is bound beyond its end`);
      return binding;
    });
    if (number < 0 && (bindings.length !== 2 || bindings[0]!.bytes !== bindings[1]!.bytes))
      throw new FileError(`${label}: a copy has a source and a target of the same size`);
    return {
      shader: shaders[number],
      bindings,
      sizes: this.shape(row["sizes"], label),
      workgroups: parseDim(row["workgroups"], this.bounds),
      label,
    };
  }

  entry(value: unknown, storage: ReadonlyMap<string, PersistentTensor>): Entry {
    const row = asObject(value, "an entry");
    const name = asText(row["name"], "an entry's name");
    const program = asObject(row["program"], `${name}: program`);
    const gpu = asObject(program["gpu"], `${name}: gpu`);
    if (!asFlag(gpu["emitted"], `${name}: emitted`)) throw new FileError(`entry ${name} was not compiled for a GPU`);
    const list = (object: JsonObject, field: string) => asList(object[field], `${name}: ${field}`);
    const inputs = list(row, "inputs").map((item) => this.port(item));
    const arenas = list(program, "arenas").map((bytes) => asIndex(bytes, `${name}: an arena`));
    const constants = list(row, "constants").map((item) => this.constant(item));
    const rows = list(program, "buffers");
    const buffers = rows.map((item) => this.buffer(item, arenas, constants, rows.length));
    buffers.forEach((pool, number) => {
      if (pool.where === "pool" && !buffers.some((buffer) => buffer.pool === number))
        throw new FileError(`${name}: ${pool.name} is a pool that holds no tensor`);
    });
    for (const buffer of buffers) {
      const pool = buffers[buffer.pool];
      if (pool !== undefined && (pool.where !== "pool" || buffer.offset % 256 !== 0 || buffer.offset + buffer.bytes > pool.bytes))
        throw new FileError(`${name}: ${buffer.name} does not stand inside ${pool.name}`);
      const kept = storage.get(buffer.name);
      if (buffer.where === "storage" && (kept === undefined || byteCount(kept.dtype, kept.shape) !== buffer.bytes))
        throw new FileError(`${name}: ${buffer.name} does not fit what the storage holds`);
      if (buffer.where === "input" && !inputs.some((input) => input.name === buffer.name))
        throw new FileError(`${name} has no input ${buffer.name}`);
    }
    const shaders = list(gpu, "shaders").map((item): ShaderSource => {
      const own = asObject(item, `${name}: a shader`);
      return { name: asText(own["name"], "a shader's name"), source: asText(own["source"], "a shader's text") };
    });
    return {
      name,
      inputs,
      outputs: list(program, "outputs").map((item) => this.readable(item, buffers)),
      captures: list(program, "captures").map((item) => this.readable(item, buffers)),
      buffers,
      arenas,
      steps: list(gpu, "steps").map((item) => this.step(item, shaders, buffers, arenas)),
      usesF16: asFlag(gpu["uses_f16"], `${name}: uses_f16`),
      usesSubgroups: asFlag(gpu["uses_subgroups"], `${name}: uses_subgroups`),
      usesSubgroupMatrices: asFlag(gpu["uses_subgroup_matrices"], `${name}: uses_subgroup_matrices`),
    };
  }
}

/** What a GPU buffer for so many bytes takes: whole vectors of four. */
export function allocated(bytes: number): number {
  return Math.max(16, Math.ceil(bytes / 16) * 16);
}

/** Throws FileError that says what is wrong with a file that is damaged, of another version, or not for WebGPU. */
export function readProgramFile(bytes: Uint8Array): ProgramFile {
  if (new TextDecoder().decode(bytes.subarray(0, magic.length)) !== magic)
    throw new FileError("not a program of this version of Jerboa");
  const { header, rest } = splitHeader(bytes, magic.length);
  const json = parseJson(header, "the header of the program");
  const target = asText(json["target"], "the target");
  if (target !== "webgpu") throw new FileError(`this is a program for the device ${target}, not for WebGPU`);
  const bounds = new Map<string, number>();
  for (const [name, bound] of Object.entries(asObject(json["symbols"], "the symbols")))
    bounds.set(name, asIndex(bound, `the bound of ${name}`, Number.MAX_SAFE_INTEGER, 1));
  const reader = new Reader(bounds, rest);
  const storage = asList(json["storage"], "the storage").map((item) => reader.persistent(item));
  const byName = new Map(storage.map((kept) => [kept.name, kept]));
  return { storage, entries: asList(json["entries"], "the entries").map((item) => reader.entry(item, byName)) };
}
