import { type Bounds, type Dim, type SymbolValues, noSymbols, parseDim, evaluateShape } from "./dim.js";
import { FileError, ShapeError } from "./errors.js";
import type { Init } from "./initialize.js";
import { type IndexView, type InputIndices, reach } from "./input_indices.js";
import type { InputRate } from "./input_rates.js";
import { type JsonObject, asFlag, asIndex, asList, asNumber, asObject, asText, parseJson } from "./json_fields.js";
import { type FiniteCheck, type IndexCheck, type RunChecks, finiteFlags, indexExtremes } from "./run_checks.js";
import { hostVersion, readSections } from "./sections.js";
import { type DType, bitsOf, byteCount, dtypes } from "./tensor.js";

// The sections of a program file for WebGPU (docs/program-files.md). Whatever a file says, a program that is parsed
// here stays within its buffers.

/** A parameter or state that entries share and that persists between runs. */
export interface PersistentTensor {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly isParameter: boolean;
  readonly init: Init;
}

/** An input or output of an entry. */
export interface Port {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly Dim[];
}

/** A tensor that can be read after a run, with its location in a buffer. */
export interface Readable extends Port {
  readonly buffer: number;
  readonly offset: Dim;
  readonly strides: readonly Dim[];
}

/** A pool contains adjacent parameters or states, which are buffers within it. */
export type BufferPlace = "storage" | "input" | "constant" | "arena" | "pool";
export interface ProgramBuffer {
  readonly where: BufferPlace;
  readonly name: string;
  readonly constant: Uint8Array | undefined;
  readonly arena: number;
  /** Offset in the arena or pool. */
  readonly offset: number;
  readonly bytes: number;
  /** The pool that contains a parameter or state, or -1. */
  readonly pool: number;
}

export interface Binding {
  readonly buffer: number;
  readonly offset: number;
  readonly bytes: number;
  readonly written: boolean;
  /** Bound as read-write, although it is only read. */
  readonly readWrite: boolean;
}

export interface ShaderSource {
  readonly name: string;
  readonly source: string;
  /** Threads per workgroup. */
  readonly threads: number;
  /** Memory that a workgroup shares. */
  readonly workgroupBytes: number;
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
  /** The checks of a run on its inputs. */
  readonly indices: readonly InputIndices[];
  readonly rates: readonly InputRate[];
  /** The checks of a run on the tensors that it computes. */
  readonly checks: RunChecks;
  readonly outputs: readonly Readable[];
  readonly captures: readonly Readable[];
  readonly buffers: readonly ProgramBuffer[];
  /** Sizes in bytes. */
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

/** The maximum size of a buffer. */
const maxBytes = 2 ** 40;
const maxWorkgroups = 65535 ** 2;
const places: readonly BufferPlace[] = ["storage", "input", "constant", "arena", "pool"];
const initKinds = ["constant", "normal", "uniform"] as const;

function asDType(value: unknown, what: string): DType {
  const found = dtypes.find((dtype) => dtype === value);
  if (found === undefined) throw new FileError(`${what}: unknown type ${JSON.stringify(value)}`);
  return found;
}

class Reader {
  /** The symbols at both ends of their ranges. */
  private readonly corners: readonly SymbolValues[];

  constructor(
    private readonly bounds: Bounds,
    private readonly blobs: Uint8Array,
  ) {
    this.corners = [bounds, new Map([...bounds.keys()].map((name) => [name, 1]))];
  }

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
    const sizes = evaluateShape(shape, noSymbols);
    if (sizes.some((size) => size < 0) || byteCount(dtype, sizes) > maxBytes) throw new FileError(`${name} cannot be [${sizes.join(", ")}]`);
    return { name, dtype, shape: sizes, isParameter, init };
  }

  private constant(value: unknown): Uint8Array {
    const row = asObject(value, "a constant");
    const shape = asList(row["shape"], "a constant's shape").map((size) => asIndex(size, "a constant's size"));
    const offset = asIndex(row["offset"], "a constant's offset");
    const bytes = byteCount(asDType(row["dtype"], "a constant"), shape);
    if (!(offset + bytes <= this.blobs.length)) throw new FileError("a constant is cut off");
    return this.blobs.subarray(offset, offset + bytes);
  }

  private buffer(value: unknown, arenas: readonly number[], constants: readonly Uint8Array[], count: number): ProgramBuffer {
    const row = asObject(value, "a buffer");
    const name = asText(row["name"], "a buffer's name");
    const where = places[asIndex(row["where"], `${name}: where`, places.length)]!;
    const bytes = asIndex(row["bytes"], `${name}: bytes`, maxBytes);
    if (where === "arena") {
      const arena = asIndex(row["arena"], `${name}: arena`, arenas.length);
      const offset = asIndex(row["offset"], `${name}: offset`);
      if (offset + bytes > arenas[arena]!) throw new FileError(`${name} is outside its arena`);
      return { where, name, constant: undefined, arena, offset, bytes, pool: -1 };
    }
    if (where === "storage") {
      const pool = asIndex(row["within"], `${name}: within`, count, -1);
      const offset = pool < 0 ? 0 : asIndex(row["inside"], `${name}: inside`);
      return { where, name, constant: undefined, arena: -1, offset, bytes, pool };
    }
    if (where !== "constant") return { where, name, constant: undefined, arena: -1, offset: 0, bytes, pool: -1 };
    const constant = constants[asIndex(row["constant"], `${name}: constant`, constants.length)]!;
    if (constant.length !== bytes) throw new FileError(`${name} does not match its contents`);
    return { where, name, constant, arena: -1, offset: 0, bytes, pool: -1 };
  }

  private readable(value: unknown, buffers: readonly ProgramBuffer[]): Readable {
    const port = this.port(value);
    const row = asObject(value, port.name);
    const strides = this.shape(row["strides"], port.name);
    if (strides.length !== port.shape.length) throw new FileError(`${port.name} does not have one stride per size`);
    const readable = {
      ...port,
      buffer: asIndex(row["buffer"], `${port.name}: buffer`, buffers.length),
      offset: parseDim(row["offset"], this.bounds),
      strides,
    };
    for (const symbols of this.corners) checkReadable(readable, buffers[readable.buffer]!, symbols);
    return readable;
  }

  private step(value: unknown, shaders: readonly ShaderSource[], buffers: readonly ProgramBuffer[], arenas: readonly number[]): Step {
    const row = asObject(value, "a step");
    const label = asText(row["label"], "a step's label");
    const number = asIndex(row["shader"], `${label}: shader`, shaders.length, -1);
    const bindings = asList(row["bindings"], `${label}: bindings`).map((item): Binding => {
      const fields = asObject(item, `${label}: a binding`);
      const binding = {
        buffer: asIndex(fields["buffer"], `${label}: buffer`, buffers.length),
        offset: asIndex(fields["offset"], `${label}: offset`, maxBytes),
        bytes: asIndex(fields["bytes"], `${label}: bytes`, maxBytes),
        written: asFlag(fields["written"], `${label}: written`),
        readWrite: asFlag(fields["read_write"], `${label}: read_write`),
      };
      const buffer = buffers[binding.buffer]!;
      const there = buffer.where === "arena" ? arenas[buffer.arena]! : (buffers[buffer.pool] ?? buffer).bytes;
      if (buffer.offset + binding.offset + binding.bytes > allocated(there))
        throw new FileError(`${label}: ${buffer.name} is bound beyond its end`);
      return binding;
    });
    if (number < 0 && (bindings.length !== 2 || bindings[0]!.bytes !== bindings[1]!.bytes))
      throw new FileError(`${label}: a copy needs a source and a target of the same size`);
    const step = {
      shader: shaders[number],
      bindings,
      sizes: this.shape(row["sizes"], label),
      workgroups: parseDim(row["workgroups"], this.bounds),
      label,
    };
    for (const symbols of this.corners) {
      const workgroups = step.workgroups.evaluate(symbols);
      if (workgroups < 0 || workgroups > maxWorkgroups) throw new FileError(`${label}: ${workgroups} workgroups are out of range`);
      for (const size of step.sizes)
        if (Math.abs(size.evaluate(symbols)) > 0xffffffff) throw new FileError(`${label}: ${size.text} does not fit u32`);
    }
    return step;
  }

  private inputIndices(value: unknown, inputs: readonly Port[]): InputIndices {
    const row = asObject(value, "indices");
    const name = asText(row["input"], "the input of indices");
    const input = inputs.find((port) => port.name === name);
    if (input?.dtype !== "i32" && input?.dtype !== "u32") throw new FileError(`${name} is not an input of integers`);
    const views = asList(row["views"], `${name}: views`).map((item): IndexView => {
      const view = asObject(item, `${name}: a view`);
      const shape = this.shape(view["shape"], name);
      const strides = this.shape(view["strides"], name);
      if (strides.length !== shape.length) throw new FileError(`${name} does not have one stride per size`);
      return { shape, offset: parseDim(view["offset"], this.bounds), strides };
    });
    return {
      input: name,
      views,
      limit: parseDim(row["limit"], this.bounds),
      negativeIsNone: asFlag(row["negative_is_none"], `${name}: negative_is_none`),
      op: asText(row["op"], `${name}: op`),
      site: asText(row["site"], `${name}: site`),
    };
  }

  // For each input whether it is a rate, or even one that may be negative.
  private rates(value: unknown, inputs: readonly Port[]): InputRate[] {
    return asList(value, "rates").flatMap((kind, number): InputRate[] => {
      const input = inputs[number];
      if (asIndex(kind, "a rate", 3) === 0 || input === undefined) return [];
      if (input.dtype !== "f32" || input.shape.length !== 0) throw new FileError(`the rate ${input.name} is not one number`);
      return [{ input: input.name, mayBeNegative: kind === 2 }];
    });
  }

  private finiteCheck(value: unknown): FiniteCheck {
    const row = asObject(value, "a check");
    const name = asText(row["name"], "the tensor of a check");
    return { name, op: asText(row["op"], `${name}: op`), site: asText(row["site"], `${name}: site`) };
  }

  private indexCheck(value: unknown): IndexCheck {
    const row = asObject(value, "a check");
    return {
      ...this.finiteCheck(row),
      limit: parseDim(row["limit"], this.bounds),
      negativeIsNone: asFlag(row["negative_is_none"], "negative_is_none"),
    };
  }

  private checks(value: unknown, outputs: readonly Readable[]): RunChecks {
    const row = asObject(value, "the checks");
    const finite = asList(row["finite"], "the finite checks").map((item) => this.finiteCheck(item));
    const indices = asList(row["indices"], "the checks of indices").map((item) => this.indexCheck(item));
    const wanted: [string, number][] = [
      [finiteFlags, finite.length],
      [indexExtremes, 2 * indices.length],
    ];
    const results = wanted.flatMap(([name, count]) => {
      if (count === 0) return [];
      const output = outputs.find((one) => one.name === name);
      if (output?.dtype !== "i32" || output.shape.length !== 1 || output.shape[0]!.text !== String(count))
        throw new FileError(`the checks need the output ${name} of ${count} i32`);
      return [output];
    });
    return { finite, indices, outputs: results };
  }

  /** `value` is what every host needs of an entry, `code` what a GPU runs, the others what a host checks. */
  entry(value: unknown, code: unknown, checked: CheckedParts, storage: ReadonlyMap<string, PersistentTensor>): Entry {
    const row = asObject(value, "an entry");
    const name = asText(row["name"], "an entry's name");
    const memory = asObject(row["memory"], `${name}: memory`);
    const gpu = asObject(code, `${name}: its code`);
    const list = (object: JsonObject, field: string) => asList(object[field], `${name}: ${field}`);
    const inputs = list(row, "inputs").map((item) => this.port(item));
    const arenas = list(memory, "arenas").map((bytes) => asIndex(bytes, `${name}: an arena`, maxBytes + 1));
    const constants = list(row, "constants").map((item) => this.constant(item));
    const rows = list(memory, "buffers");
    const buffers = rows.map((item) => this.buffer(item, arenas, constants, rows.length));
    buffers.forEach((pool, number) => {
      if (pool.where === "pool" && !buffers.some((buffer) => buffer.pool === number))
        throw new FileError(`${name}: ${pool.name} is a pool that holds no tensor`);
    });
    for (const buffer of buffers) {
      const pool = buffers[buffer.pool];
      if (pool !== undefined && (pool.where !== "pool" || buffer.offset % 256 !== 0 || buffer.offset + buffer.bytes > pool.bytes))
        throw new FileError(`${name}: ${buffer.name} is not inside ${pool.name}`);
      const kept = storage.get(buffer.name);
      if (buffer.where === "storage" && (kept === undefined || byteCount(kept.dtype, kept.shape) !== buffer.bytes))
        throw new FileError(`${name}: ${buffer.name} does not match the storage`);
      if (buffer.where === "input" && !inputs.some((input) => input.name === buffer.name))
        throw new FileError(`${name} has no input ${buffer.name}`);
    }
    const shaders = list(gpu, "shaders").map((item): ShaderSource => {
      const shader = asObject(item, `${name}: a shader`);
      return {
        name: asText(shader["name"], "a shader's name"),
        source: asText(shader["source"], "a shader's source"),
        threads: asIndex(shader["threads"], `${name}: threads`, 2 ** 31, 1),
        workgroupBytes: asIndex(shader["workgroup_bytes"], `${name}: workgroup_bytes`, maxBytes),
      };
    });
    const outputs = list(memory, "outputs").map((item) => this.readable(item, buffers));
    const checks = this.checks(checked.run, outputs);
    return {
      name,
      inputs,
      indices: asList(checked.indices, `${name}: indices`).map((item) => this.inputIndices(item, inputs)),
      rates: this.rates(checked.rates, inputs),
      checks,
      outputs: outputs.filter((output) => !checks.outputs.includes(output)),
      captures: list(memory, "captures").map((item) => this.readable(item, buffers)),
      buffers,
      arenas,
      steps: list(gpu, "steps").map((item) => this.step(item, shaders, buffers, arenas)),
      usesF16: asFlag(gpu["uses_f16"], `${name}: uses_f16`),
      usesSubgroups: asFlag(gpu["uses_subgroups"], `${name}: uses_subgroups`),
      usesSubgroupMatrices: list(gpu, "subgroup_matrices").length > 0,
    };
  }
}

/** Of an entry: indices and rates among its inputs, and what a run checks afterwards. */
interface CheckedParts {
  readonly indices: unknown;
  readonly rates: unknown;
  readonly run: unknown;
}

/** The size of a GPU buffer for this many bytes: whole vectors of four. */
export function allocated(bytes: number): number {
  return Math.max(16, Math.ceil(bytes / 16) * 16);
}

// Checks that everything that is read after a run lies inside its buffer.
function checkReadable(readable: Readable, buffer: ProgramBuffer, symbols: SymbolValues): void {
  if (bitsOf(readable.dtype) < 16) throw new FileError(`${readable.name} is ${readable.dtype}, which cannot be read after a run`);
  const shape = evaluateShape(readable.shape, symbols);
  if (shape.some((size) => size < 0)) throw new FileError(`${readable.name} cannot be [${shape.join(", ")}]`);
  const range = reach(readable.offset, readable.strides, shape, symbols);
  if (range === undefined) return;
  const [first, last] = range;
  if (!(first >= 0 && ((last + 1) * bitsOf(readable.dtype)) / 8 <= buffer.bytes)) throw new FileError(`${readable.name} is read outside of ${buffer.name}`);
}

const knownFeatures: readonly string[] = ["f16", "subgroups"];
const knownLimits: readonly string[] = ["buffer_bytes", "binding_bytes", "workgroup_bytes", "bindings", "invocations"];

// A program's requirements are derived from its steps; this only checks that the host knows all of them.
function checkRequirements(json: JsonObject): void {
  const target = asText(json["device"], "the device");
  if (target !== "webgpu") throw new FileError(`this is a program for the device ${target}, not for WebGPU`);
  const refuse = (what: string, name: string) => new FileError(`the program needs the ${what} ${name}, which this host (${hostVersion.join(".")}) does not know`);
  for (const feature of asList(json["features"], "the features")) {
    const name = asText(feature, "a feature");
    if (!knownFeatures.includes(name)) throw refuse("feature", name);
  }
  for (const name of Object.keys(asObject(json["limits"], "the limits"))) if (!knownLimits.includes(name)) throw refuse("limit", name);
  asList(json["subgroup_matrices"], "the subgroup matrices"); // those that steps use are checked against the device
}

/** Throws FileError for a file that is damaged, of another version, or not for WebGPU. */
export function readProgramFile(bytes: Uint8Array): ProgramFile {
  try {
    return decode(bytes);
  } catch (error) {
    if (error instanceof ShapeError) throw new FileError(error.message); // sizes that overflow
    throw error;
  }
}

function decode(bytes: Uint8Array): ProgramFile {
  const sections = new Map(readSections(bytes).map((section) => [section.kind, section.bytes]));
  const content = (kind: string) => {
    const found = sections.get(kind);
    if (found === undefined) throw new FileError(`the program lacks the section ${kind}`);
    return found;
  };
  const json = (kind: string) => parseJson(new TextDecoder().decode(content(kind)), `the section ${kind}`);
  checkRequirements(asObject(json("NEED"), "the requirements"));
  const programs = asObject(json("PROG"), "the programs");
  const code = asList(json("GPU "), "the code");
  const bounds = new Map<string, number>();
  for (const [name, bound] of Object.entries(asObject(programs["symbols"], "the symbols")))
    bounds.set(name, asIndex(bound, `the bound of ${name}`, 2 ** 31, 1));
  const reader = new Reader(bounds, content("DATA"));
  const storage = asList(programs["storage"], "the storage").map((item) => reader.persistent(item));
  const byName = new Map(storage.map((kept) => [kept.name, kept]));
  const entries = asList(programs["entries"], "the entries");
  if (entries.length !== code.length) throw new FileError("the program does not have code for each entry");
  const ofEntries = (kind: string, what: string, none: unknown) => {
    const rows = sections.has(kind) ? asList(json(kind), what) : entries.map(() => none);
    if (entries.length !== rows.length) throw new FileError(`the program does not have ${what} for each entry`);
    return rows;
  };
  const indices = ofEntries("INDX", "a list of indices", []);
  const rates = ofEntries("RATE", "a list of rates", []);
  const checks = ofEntries("CHCK", "a list of checks", { finite: [], indices: [] });
  const read = (item: unknown, number: number) =>
    reader.entry(item, code[number], { indices: indices[number], rates: rates[number], run: checks[number] }, byName);
  return { storage, entries: entries.map(read) };
}
