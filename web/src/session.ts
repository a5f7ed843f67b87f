import { asBytes, asNames, asOptions, asSeed, described } from "./checks.js";
import { BufferSet, type Gpu } from "./device.js";
import { type Dim, type SymbolValues, evaluateShape } from "./dim.js";
import { FileError, ShapeError, UsageError, listed } from "./errors.js";
import { Executable, type Place } from "./executable.js";
import { f32ToF16 } from "./float16.js";
import { initialValues } from "./initialize.js";
import { checkInputIndices } from "./input_indices.js";
import { checkInputRates } from "./input_rates.js";
import type { StepTimes } from "./profile.js";
import type { Entry, PersistentTensor, Port, ProgramFile } from "./program_file.js";
import type { RunResult } from "./result.js";
import { readSafetensors, writeSafetensors } from "./safetensors.js";
import { type Tensor, type TensorData, asShape, byteCount, bytesOf, checkData, checkTensor, fromBytes, shapeText, typeText } from "./tensor.js";

export interface SessionOptions {
  /** A safetensors file: every parameter, or a checkpoint saved by a session. By default they are initialised from the seed. */
  readonly parameters?: Uint8Array | undefined;
  /** For initial values and random ops. */
  readonly seed?: number | bigint;
  /** The entries to compile, all by default. Others take no memory. */
  readonly entries?: readonly string[];
  /** If false, parameters and states are zeros until they are uploaded. */
  readonly initialise?: boolean;
}

export interface RunOptions {
  readonly captures?: readonly string[];
  /** The outputs that can be read afterwards; by default all. */
  readonly outputs?: readonly string[];
}

/** An input: a tensor, or its elements alone where the program fixes the shape. */
export type Input = Tensor | TensorData;

interface Slot extends Place {
  readonly tensor: PersistentTensor;
  /** Adjacent to others, because an entry requires it. */
  readonly isPooled: boolean;
}

/** Prefix of states' names in checkpoints. */
export const statePrefix = "jerboa.state/";
const gradientPrefix = "grad/";
/** States that are f16 copies of parameters, for products in mixed precision; neither listed nor saved. */
const halfCopyPrefix = "f16/";
const isHalfCopy = (tensor: PersistentTensor) => !tensor.isParameter && tensor.name.startsWith(halfCopyPrefix);
const checkpointFormat = "jerboa.checkpoint";

/** Parameters and states on a device, which persist between runs, and the entries that use them. */
export class Session {
  private readonly slots = new Map<string, Slot>();
  private readonly executables = new Map<string, Executable>();
  private readonly reserved = new Set<string>(); // names of entries that are being added
  private readonly memory: BufferSet;
  private adding: Promise<void> = Promise.resolve();
  private moves = 0; // how often parameters and states have moved
  private seed = 0n;
  private destroyed = false;

  private constructor(
    private readonly gpu: Gpu,
    private readonly initialises: boolean,
  ) {
    this.memory = new BufferSet(gpu);
  }

  /** Nothing stays allocated if this throws. See Program.createSession. */
  static async create(gpu: Gpu, file: ProgramFile, options: SessionOptions): Promise<Session> {
    const { parameters, seed = 0, entries: names, initialise = true } = asOptions(options, "the options of createSession");
    const entries = chosen(file.entries, asNames(names, "entries"));
    const session = new Session(gpu, initialise);
    session.seed = asSeed(seed);
    try {
      gpu.check();
      await session.addStorage(file, entries);
      if (parameters !== undefined) session.load(parameters);
      await session.addExecutables(entries);
      return session;
    } catch (error) {
      session.destroy();
      throw error;
    }
  }

  /**
   * Adds the entries of another program for the same device, which share parameters and states by name; new ones are
   * initialised. Throws UsageError if one of the same name has another type. See Program.addTo.
   */
  async add(file: ProgramFile): Promise<void> {
    this.check();
    // One after another, because each depends on where the previous ones have put storage.
    const stored = this.adding.then(() => this.addChecked(file));
    this.adding = stored.catch(() => undefined);
    await stored;
    await this.addExecutables(file.entries).finally(() => this.release(file.entries));
  }

  // Reserves the names of the entries, unless it throws.
  private async addChecked(file: ProgramFile): Promise<void> {
    this.check();
    for (const { name } of file.entries)
      if (this.executables.has(name) || this.reserved.has(name)) throw new UsageError(`the session already has an entry ${name}`);
    for (const tensor of file.storage) {
      const known = this.slots.get(tensor.name)?.tensor;
      if (known !== undefined && (known.dtype !== tensor.dtype || shapeText(known.shape) !== shapeText(tensor.shape)))
        throw new UsageError(
          `${tensor.name} is ${typeText(known.dtype, known.shape)} in the session but ${typeText(tensor.dtype, tensor.shape)} in the program`,
        );
    }
    for (const { name } of file.entries) this.reserved.add(name);
    try {
      await this.addStorage(file, file.entries);
    } catch (error) {
      this.release(file.entries);
      throw error;
    }
  }

  private release(entries: readonly Entry[]): void {
    for (const { name } of entries) this.reserved.delete(name);
  }

  get entryNames(): string[] {
    return [...this.executables.keys()];
  }
  get parameterNames(): string[] {
    return this.names(true);
  }
  get stateNames(): string[] {
    return this.names(false);
  }

  /**
   * Runs an entry. Input shapes bind the program's symbols. Everything is checked before anything is done, and the run
   * is submitted before this returns its promise, which resolves when the device has accepted it. If the program was
   * compiled with checks, it resolves when the device is done, or rejects with the first tensor that fails one.
   */
  async run(entry: string, inputs: Readonly<Record<string, Input>> = {}, options: RunOptions = {}): Promise<RunResult> {
    return this.submit(entry, inputs, options);
  }

  /** The same, but throws errors in the call at once: if it returns, the run is submitted. */
  submit(entry: string, inputs: Readonly<Record<string, Input>> = {}, options: RunOptions = {}): Promise<RunResult> {
    const { executable, tensors, symbols } = this.prepared(entry, inputs);
    const definition = executable.entry;
    const { captures: names, outputs: wanted } = asOptions(options, "the options of run");
    const captures = (asNames(names, "captures") ?? []).map((name) => {
      const found = definition.captures.find((capture) => capture.name === name);
      if (found === undefined)
        throw new UsageError(`entry ${entry}: no capture is named ${name}; available: ${listed(definition.captures.map((one) => one.name))}`);
      return found;
    });
    const chosenOutputs = asNames(wanted, "outputs");
    const outputs = chosenOutputs === undefined ? definition.outputs : definition.outputs.filter((output) => chosenOutputs.includes(output.name));
    return executable.run(tensors, symbols, [...outputs, ...captures]);
  }

  /** Runs an entry, and times every step of it. Parameters and states change as in any run. */
  async profile(entry: string, inputs: Readonly<Record<string, Input>> = {}): Promise<StepTimes> {
    const { executable, tensors, symbols } = this.prepared(entry, inputs);
    return executable.profile(tensors, symbols);
  }

  private prepared(entry: string, inputs: Readonly<Record<string, Input>>): { executable: Executable; tensors: Map<string, Tensor>; symbols: SymbolValues } {
    this.check();
    const executable = this.executables.get(entry);
    if (executable === undefined)
      throw new UsageError(`the session has no entry ${entry}; available: ${listed(this.entryNames)}`);
    const { tensors, symbols } = checkInputs(executable.entry, asOptions(inputs, `entry ${entry}: inputs`));
    checkInputIndices(executable.entry.indices, tensors, symbols);
    checkInputRates(entry, executable.entry.rates, tensors);
    return { executable, tensors, symbols };
  }

  /** Replaces parameters or states; if one fails, none is replaced. */
  upload(values: ReadonlyMap<string, Tensor>): void {
    this.check();
    if (!(values instanceof Map)) throw new UsageError(`an upload takes a Map from names to tensors, not ${described(values)}`);
    for (const [name, value] of values) checkFits(this.slot(name).tensor, value);
    for (const [name, value] of values) this.write(this.slots.get(name)!, value);
  }

  /** Replaces some bytes of a parameter or state, given in the layout of its type. */
  uploadBytes(name: string, bytes: Uint8Array, offset = 0): void {
    this.check();
    const { tensor, buffer, offset: start } = this.slot(name);
    const size = byteCount(tensor.dtype, tensor.shape);
    if (!Number.isSafeInteger(offset) || offset < 0 || offset % 4 !== 0 || offset + bytes.length > size)
      throw new UsageError(`${name} has ${size} bytes; ${bytes.length} from byte ${offset} on are not whole words inside it`);
    this.gpu.write(buffer, bytes, start + offset);
  }

  /** Reads a parameter or state once all earlier runs are done. */
  async download(name: string): Promise<Tensor> {
    this.check();
    const { tensor, buffer, offset } = this.slot(name);
    const bytes = await this.gpu.read(buffer, byteCount(tensor.dtype, tensor.shape), offset);
    return fromBytes(tensor.dtype, tensor.shape, bytes);
  }

  async downloadParameters(): Promise<Map<string, Tensor>> {
    return this.downloadAll(this.parameterNames);
  }

  /** Parameters and states as one safetensors file, which Session::load of the C++ library reads too. */
  async save(): Promise<Uint8Array<ArrayBuffer>> {
    const { seed } = this;
    // Both begin before anything is awaited, so that they are consistent whatever is run meanwhile.
    const [tensors, states] = await Promise.all([this.downloadAll(this.parameterNames), this.downloadAll(this.stateNames)]);
    for (const [name, value] of states) tensors.set(statePrefix + name, value);
    return writeSafetensors(tensors, new Map([["format", checkpointFormat], ["seed", String(seed)]]));
  }

  /** Loads a file of all parameters, or a checkpoint that includes the states. Throws before anything changes. */
  load(bytes: Uint8Array): void {
    this.check();
    const { tensors, metadata } = readSafetensors(asBytes(bytes, "a checkpoint"));
    const isCheckpoint = metadata.get("format") === checkpointFormat;
    const values = new Map<string, Tensor>();
    const missing: string[] = [];
    const wanted = new Set<string>();
    const take = (name: string, stored: string) => {
      wanted.add(stored);
      const loaded = tensors.get(stored);
      if (loaded === undefined) {
        missing.push(name);
        return;
      }
      const { tensor } = this.slot(name);
      values.set(name, tensor.dtype === "boolean" && loaded.dtype === "u32" ? { ...loaded, dtype: "boolean" } : loaded);
      checkFits(tensor, values.get(name)!);
    };
    for (const name of this.parameterNames) take(name, name);
    if (isCheckpoint) for (const name of this.stateNames) take(name, statePrefix + name);
    const unknown = [...tensors.keys()].filter((name) => !wanted.has(name));
    if (missing.length > 0 || unknown.length > 0)
      throw new FileError(`the file does not match the session: missing: ${listed(missing)}; unknown: ${listed(unknown)}`);
    if (isCheckpoint) {
      const seed = metadata.get("seed") ?? "";
      if (!/^\d{1,20}$/.test(seed)) throw new FileError("the checkpoint's metadata has no seed");
      this.seed = BigInt(seed);
    }
    this.upload(values);
  }

  /** Reinitialises parameters and states, from the same seed or another. */
  reset(seed: number | bigint = this.seed): void {
    this.check();
    this.seed = asSeed(seed);
    for (const slot of this.slots.values()) this.initialise(slot);
  }

  /** Frees the device's memory. Results of earlier runs can still be read. */
  destroy(): void {
    this.destroyed = true;
    for (const executable of this.executables.values()) executable.destroy();
    this.executables.clear();
    this.memory.destroy();
  }

  private async addStorage(file: ProgramFile, entries: readonly Entry[]): Promise<void> {
    const memory = new BufferSet(this.gpu); // freed if not all of it can be allocated
    let slots: readonly Slot[];
    try {
      const pooled = poolPlaces(entries, this.slots, memory);
      slots = file.storage.map((tensor): Slot => {
        const known = this.slots.get(tensor.name);
        const place = pooled.get(tensor.name) ?? known ?? { buffer: memory.create(byteCount(tensor.dtype, tensor.shape), tensor.name), offset: 0 };
        return { tensor, buffer: place.buffer, offset: place.offset, isPooled: pooled.has(tensor.name) || (known?.isPooled ?? false) };
      });
      await memory.check();
      this.check();
    } catch (error) {
      memory.destroy();
      throw error;
    }
    this.memory.take(memory);
    // From here on nothing is awaited until all have moved: earlier uploads move, too, and later ones go to the new place.
    const added: Slot[] = [];
    const moves: { readonly from: Slot; readonly to: Slot }[] = [];
    for (const slot of slots) {
      const known = this.slots.get(slot.tensor.name);
      if (known === undefined) added.push(slot);
      else if (known.buffer !== slot.buffer) moves.push({ from: known, to: slot });
      this.slots.set(slot.tensor.name, slot);
    }
    if (this.initialises) for (const slot of added) this.initialise(slot);
    if (moves.length > 0) await this.move(moves);
  }

  // Moves the values of tensors that have joined a pool, and binds entries to the new locations.
  private async move(moves: readonly { readonly from: Slot; readonly to: Slot }[]): Promise<void> {
    ++this.moves;
    await this.gpu.validated("moving parameters", () => {
      const encoder = this.gpu.device.createCommandEncoder();
      for (const { from, to } of moves) {
        const bytes = Math.ceil(byteCount(from.tensor.dtype, from.tensor.shape) / 4) * 4;
        if (bytes > 0) encoder.copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, bytes);
      }
      this.gpu.device.queue.submit([encoder.finish()]);
      this.bindAll();
    });
    for (const { from } of moves) this.memory.free(from.buffer);
  }

  private readonly place = (name: string): Place => this.slots.get(name)!;

  // Adds all of them or, if one fails, none.
  private async addExecutables(entries: readonly Entry[]): Promise<void> {
    const before = this.moves;
    const outcomes = await Promise.allSettled(entries.map((entry) => Executable.create(this.gpu, entry, this.place)));
    const made = outcomes.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
    try {
      this.check();
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      if (failed !== undefined) throw failed.reason;
      for (const executable of made) this.executables.set(executable.entry.name, executable);
      if (this.moves !== before) await this.gpu.validated("binding parameters that have moved", () => this.bindAll());
    } catch (error) {
      for (const executable of made) {
        this.executables.delete(executable.entry.name);
        executable.destroy();
      }
      throw error;
    }
  }

  private bindAll(): void {
    for (const executable of this.executables.values()) executable.bind(this.place);
  }

  private initialise(slot: Slot): void {
    const { tensor } = slot;
    if (isHalfCopy(tensor)) return; // written with its parameter
    this.write(slot, initialValues(tensor.name, tensor.dtype, tensor.shape, tensor.init, this.seed));
  }

  private check(): void {
    if (this.destroyed) throw new UsageError("the session was destroyed");
    this.gpu.check();
  }

  private names(parameters: boolean): string[] {
    const tensors = [...this.slots.values()].map((slot) => slot.tensor);
    const isListed = (one: PersistentTensor) => !one.name.startsWith(gradientPrefix) && !isHalfCopy(one);
    return tensors.filter((one) => one.isParameter === parameters && isListed(one)).map((one) => one.name);
  }

  /** Writes a tensor, and for a parameter its f16 copy, if there is one. */
  private write({ tensor, buffer, offset }: Slot, value: Tensor): void {
    this.gpu.write(buffer, bytesOf(value.data), offset);
    const copy = tensor.isParameter ? this.slots.get(halfCopyPrefix + tensor.name) : undefined;
    if (copy === undefined || tensor.dtype !== "f32" || shapeText(copy.tensor.shape) !== shapeText(tensor.shape)) return;
    const halves = Uint16Array.from(value.data as Float32Array, f32ToF16);
    this.gpu.write(copy.buffer, bytesOf(halves), copy.offset);
  }

  private slot(name: string): Slot {
    const slot = this.slots.get(name);
    if (slot === undefined)
      throw new UsageError(`no parameter or state is named ${name}; available: ${listed(this.slots.keys())}`);
    return slot;
  }

  private async downloadAll(names: readonly string[]): Promise<Map<string, Tensor>> {
    const values = await Promise.all(names.map((name) => this.download(name)));
    return new Map(names.map((name, i) => [name, values[i]!]));
  }
}

function chosen(entries: readonly Entry[], names: readonly string[] | undefined): readonly Entry[] {
  return (
    names?.map((name) => {
      const found = entries.find((entry) => entry.name === name);
      if (found === undefined)
        throw new UsageError(`the program has no entry ${name}; available: ${listed(entries.map((entry) => entry.name))}`);
      return found;
    }) ?? entries
  );
}

function checkFits(wanted: PersistentTensor, given: unknown): void {
  checkTensor(given, wanted.name);
  if (given.dtype !== wanted.dtype || shapeText(given.shape) !== shapeText(wanted.shape))
    throw new UsageError(
      `${wanted.name} is ${typeText(wanted.dtype, wanted.shape)} but was given ${typeText(given.dtype, given.shape)}`,
    );
}

function shapeOf(port: Port): string {
  return `${port.dtype}[${port.shape.map((dim: Dim) => dim.text).join(", ")}]`;
}

// Checks the inputs of a run against those of the entry, and returns the values of its symbols.
function checkInputs(entry: Entry, inputs: Readonly<Partial<Record<string, Input>>>): { tensors: Map<string, Tensor>; symbols: SymbolValues } {
  const wanted = new Set(entry.inputs.map((port) => port.name));
  const missing = [...wanted].filter((name) => inputs[name] === undefined || inputs[name] === null);
  const unknown = Object.keys(inputs).filter((name) => !wanted.has(name));
  if (missing.length > 0 || unknown.length > 0)
    throw new UsageError(`entry ${entry.name}: missing inputs: ${listed(missing)}; unknown inputs: ${listed(unknown)}`);
  const tensors = new Map<string, Tensor>();
  const symbols = new Map<string, number>();
  for (const port of entry.inputs) {
    const given = asTensor(entry, port, inputs[port.name]!);
    tensors.set(port.name, given);
    // A size that is just a symbol binds it; the first input with that symbol counts.
    port.shape.forEach((dim, axis) => {
      const size = given.shape[axis];
      if (dim.symbol !== undefined && size !== undefined && !symbols.has(dim.symbol)) symbols.set(dim.symbol, size);
    });
  }
  for (const port of entry.inputs) {
    const given = tensors.get(port.name)!;
    const text = `entry ${entry.name}: input ${port.name} is ${typeText(given.dtype, given.shape)} but the program takes ${shapeOf(port)}`;
    let shape: number[];
    try {
      shape = evaluateShape(port.shape, symbols);
    } catch (error) {
      if (error instanceof ShapeError) throw new UsageError(`${text}: ${error.message}`);
      throw error;
    }
    if (given.dtype !== port.dtype || shapeText(given.shape) !== shapeText(shape)) throw new UsageError(text);
    checkData(given.data, port.dtype, shape, `entry ${entry.name}: input ${port.name}`);
  }
  return { tensors, symbols };
}

function asTensor(entry: Entry, port: Port, given: Input): Tensor {
  const what = `entry ${entry.name}: input ${port.name}`;
  if (!ArrayBuffer.isView(given)) {
    if (typeof given !== "object" || !("data" in given))
      throw new UsageError(`${what} is ${shapeOf(port)}, and takes a tensor or a typed array, not ${described(given)}`);
    return { ...given, shape: asShape(given.shape, `${what}: its shape`) };
  }
  try {
    return { dtype: port.dtype, shape: evaluateShape(port.shape, new Map()), data: given };
  } catch {
    throw new UsageError(`${what} is ${shapeOf(port)}, so it must be passed with its shape`);
  }
}

// Allocates buffers for parameters and states that an entry needs adjacent, and returns their locations. Those that are
// already adjacent in the same order stay where they are.
function poolPlaces(entries: readonly Entry[], slots: ReadonlyMap<string, Slot>, memory: BufferSet): Map<string, Place> {
  const places = new Map<string, Place>();
  const known = new Set<string>();
  for (const entry of entries) {
    entry.buffers.forEach((pool, number) => {
      if (pool.where !== "pool") return;
      const members = entry.buffers.filter((buffer) => buffer.pool === number);
      const layout = JSON.stringify([pool.bytes, members.map((member) => [member.name, member.offset]).sort()]);
      if (known.has(layout)) return; // shared with another entry
      known.add(layout);
      const there = members.map((member) => slots.get(member.name));
      const isThere = there.every((slot, i) => slot?.isPooled && slot.buffer === there[0]!.buffer && slot.offset === members[i]!.offset);
      if (isThere) return;
      if (there.some((slot) => slot?.isPooled))
        throw new UsageError(`the program needs ${members[0]!.name} and others at different offsets than the session's entries`);
      const buffer = memory.create(pool.bytes, pool.name);
      for (const member of members) {
        if (places.has(member.name))
          throw new FileError(`the entries of the program need ${member.name} at different offsets; choose some with \`entries\``);
        places.set(member.name, { buffer, offset: member.offset });
      }
    });
  }
  return places;
}
