import { type SymbolValues, evaluateShape } from "./dim.js";
import { BufferSet, type Gpu, GpuUsage } from "./device.js";
import type { Pipeline } from "./pipelines.js";
import { type StepTimes, timeSteps } from "./profile.js";
import { type Binding, type Entry, type Readable } from "./program_file.js";
import { RunResult, type ResultPlace } from "./result.js";
import { throwFailedChecks } from "./run_checks.js";
import { StagingPool } from "./staging.js";
import { type Tensor, bitsOf, bytesOf } from "./tensor.js";

const uniformAlignment = 256;
/** Results that stay on the device until they are read; older ones are moved to host memory. */
const maxUnread = 16;

function wholeWords(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

/** The location of a parameter or state on the device. */
export interface Place {
  readonly buffer: GPUBuffer;
  readonly offset: number;
}

export type Storage = (name: string) => Place;

interface Dispatch {
  readonly pipeline: GPUComputePipeline;
  readonly bindings: GPUBindGroup;
}

/**
 * An entry of a session, compiled for its device: memory, pipelines and bind groups, created once. Each run is one
 * submit.
 */
export class Executable {
  private readonly memory: BufferSet;
  private entryBuffers: (GPUBuffer | undefined)[] = []; // by buffer; those of the session are not
  private buffers: GPUBuffer[] = [];
  private offsets: number[] = []; // by buffer: its offset
  private sizes: GPUBuffer | undefined;
  private sizesOffsets: number[] = [];
  private sizesBytes = 0;
  private pipelines: (Pipeline | undefined)[] = [];
  private dispatches: (Dispatch | undefined)[] = [];
  private workgroups: (readonly [number, number])[] = [];
  private symbols = "";
  private readonly stagings: StagingPool;
  private readonly unread = new Set<RunResult>(); // in the order of the runs

  private constructor(
    private readonly gpu: Gpu,
    readonly entry: Entry,
  ) {
    this.memory = new BufferSet(gpu);
    this.stagings = new StagingPool(gpu);
  }

  /** `storage` returns the memory of parameters and states. Nothing stays allocated if this throws. */
  static async create(gpu: Gpu, entry: Entry, storage: Storage): Promise<Executable> {
    const executable = new Executable(gpu, entry);
    try {
      executable.allocate();
      await executable.memory.check();
      await executable.compile();
      await gpu.validated(`binding the memory of entry ${entry.name}`, () => executable.bind(storage));
      return executable;
    } catch (error) {
      executable.destroy();
      throw error;
    }
  }

  destroy(): void {
    this.memory.destroy();
    this.stagings.destroy();
  }

  private allocate(): void {
    const { entry } = this;
    const arenas = entry.arenas.map((bytes, number) => {
      const holds = entry.buffers.find((buffer) => buffer.where === "arena" && buffer.arena === number);
      return this.memory.create(bytes, `the memory of ${holds?.name ?? "nothing"} and others in entry ${entry.name}`);
    });
    this.entryBuffers = entry.buffers.map((buffer) => {
      if (buffer.where === "storage" || buffer.where === "pool") return undefined;
      if (buffer.where === "arena") return arenas[buffer.arena]!;
      const made = this.memory.create(buffer.bytes, buffer.name);
      if (buffer.constant !== undefined) this.gpu.write(made, new Uint8Array(buffer.constant));
      return made;
    });
    this.sizesOffsets = entry.steps.map((step) => {
      const offset = this.sizesBytes;
      this.sizesBytes += Math.ceil((step.sizes.length * 4) / uniformAlignment) * uniformAlignment;
      return offset;
    });
    if (this.sizesBytes > 0) this.sizes = this.memory.create(this.sizesBytes, "sizes", GpuUsage.uniform);
  }

  private place(binding: Binding): { buffer: GPUBuffer; offset: number } {
    const offset = this.offsets[binding.buffer]! + binding.offset;
    return { buffer: this.buffers[binding.buffer]!, offset };
  }

  private async compile(): Promise<void> {
    this.pipelines = await Promise.all(
      this.entry.steps.map((step) => (step.shader === undefined ? undefined : this.gpu.pipelines.get(step.shader, step))),
    );
  }

  /** Creates the bind groups for these locations of parameters and states. */
  bind(storage: Storage): void {
    const { entry } = this;
    this.offsets = entry.buffers.map((buffer) => (buffer.where === "storage" ? storage(buffer.name).offset : buffer.offset));
    this.buffers = entry.buffers.map((buffer, number) => {
      if (buffer.where === "pool") return poolMemory(entry, number, storage);
      return this.entryBuffers[number] ?? storage(buffer.name).buffer;
    });
    this.dispatches = entry.steps.map((step, number) => {
      const compiled = this.pipelines[number];
      if (compiled === undefined) return undefined;
      const entries: GPUBindGroupEntry[] = step.bindings.map((binding, index) => ({
        binding: index,
        resource: { ...this.place(binding), size: Math.max(16, wholeWords(binding.bytes)) },
      }));
      if (step.sizes.length > 0)
        entries.push({
          binding: entries.length,
          resource: {
            buffer: this.sizes!,
            offset: this.sizesOffsets[number]!,
            size: Math.ceil(step.sizes.length / 4) * 16,
          },
        });
      const bindings = this.gpu.device.createBindGroup({ label: step.label, layout: compiled.layout, entries });
      return { pipeline: compiled.pipeline, bindings };
    });
  }

  private setSymbols(symbols: SymbolValues): void {
    const key = JSON.stringify([...symbols].sort());
    if (key === this.symbols) return;
    const most = this.gpu.device.limits.maxComputeWorkgroupsPerDimension;
    const sizes = new Uint32Array(this.sizesBytes / 4);
    this.workgroups = this.entry.steps.map((step, number) => {
      step.sizes.forEach((size, k) => (sizes[this.sizesOffsets[number]! / 4 + k] = size.evaluate(symbols)));
      const count = step.workgroups.evaluate(symbols);
      const across = Math.min(count, most);
      return [across, across === 0 ? 0 : Math.ceil(count / across)];
    });
    if (this.sizes !== undefined) this.gpu.write(this.sizes, bytesOf(sizes));
    this.symbols = key;
  }

  /**
   * The session has checked that the inputs match the entry and that the results are the entry's outputs and captures.
   * Rejects if a check of the program fails; a program without checks does not wait for the device to finish.
   */
  async run(inputs: ReadonlyMap<string, Tensor>, symbols: SymbolValues, results: readonly Readable[]): Promise<RunResult> {
    const { checks, steps } = this.entry;
    const result = await this.start(inputs, symbols, [...results, ...checks.outputs]);
    if (checks.outputs.length > 0) await throwFailedChecks(checks, steps, result, symbols);
    return result;
  }

  private async start(inputs: ReadonlyMap<string, Tensor>, symbols: SymbolValues, results: readonly Readable[]): Promise<RunResult> {
    // Everything up to the submit happens before the first await, so runs never interleave.
    const places: ResultPlace[] = [];
    let bytes = 0;
    for (const readable of results) {
      const place = placeOf(readable, symbols, bytes);
      places.push(place);
      bytes = place.staged + Math.ceil(place.bytes / 8) * 8;
    }
    const { device } = this.gpu;
    let staging: GPUBuffer | undefined;
    try {
      await this.gpu.validated(`running entry ${this.entry.name}`, () => {
        const copies = (staging = this.stagings.take(bytes));
        this.writeInputs(inputs, symbols);
        const encoder = device.createCommandEncoder({ label: this.entry.name });
        this.encode(encoder);
        for (const place of places) {
          const base = this.offsets[place.readable.buffer]!;
          const from = this.buffers[place.readable.buffer]!;
          if (place.bytes > 0) encoder.copyBufferToBuffer(from, base + place.from, copies, place.staged, place.bytes);
        }
        device.queue.submit([encoder.finish()]);
      });
    } catch (error) {
      staging?.destroy();
      throw error;
    }
    const unlisted = new Set(this.entry.checks.outputs.map((output) => output.name));
    const result = new RunResult(this.gpu, staging!, bytes, places, unlisted, (reusable) => {
      this.unread.delete(result);
      if (reusable) this.stagings.give(staging!);
      else staging!.destroy();
    });
    this.unread.add(result);
    for (const oldest of this.unread) {
      if (this.unread.size <= maxUnread) break;
      this.unread.delete(oldest);
      oldest.moveToHost();
    }
    return result;
  }

  private writeInputs(inputs: ReadonlyMap<string, Tensor>, symbols: SymbolValues): void {
    this.setSymbols(symbols);
    this.entry.buffers.forEach((buffer, number) => {
      if (buffer.where === "input") this.gpu.write(this.buffers[number]!, bytesOf(inputs.get(buffer.name)!.data));
    });
  }

  /** Runs the entry without reading results; returns how many milliseconds each step took. */
  async profile(inputs: ReadonlyMap<string, Tensor>, symbols: SymbolValues): Promise<StepTimes> {
    await this.gpu.validated(`profiling entry ${this.entry.name}`, () => this.writeInputs(inputs, symbols));
    return timeSteps(this.gpu, this.entry.name, this.entry.steps.length, (encoder, number, timestamps) => {
      if (this.dispatches[number] === undefined) return this.encodeCopy(encoder, number);
      const pass = encoder.beginComputePass(timestamps === undefined ? {} : { timestampWrites: timestamps });
      this.encodeDispatch(pass, number);
      pass.end();
    });
  }

  private encode(encoder: GPUCommandEncoder): void {
    let pass: GPUComputePassEncoder | undefined;
    this.entry.steps.forEach((_, number) => {
      if (this.dispatches[number] === undefined) {
        pass?.end();
        pass = undefined;
        this.encodeCopy(encoder, number);
        return;
      }
      pass ??= encoder.beginComputePass();
      this.encodeDispatch(pass, number);
    });
    pass?.end();
  }

  private encodeCopy(encoder: GPUCommandEncoder, number: number): void {
    const { bindings } = this.entry.steps[number]!;
    const [from, to] = [this.place(bindings[0]!), this.place(bindings[1]!)];
    encoder.copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, wholeWords(bindings[0]!.bytes));
  }

  private encodeDispatch(pass: GPUComputePassEncoder, number: number): void {
    const [across, down] = this.workgroups[number]!;
    if (across === 0) return;
    const { pipeline, bindings } = this.dispatches[number]!;
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, bindings);
    pass.dispatchWorkgroups(across, down);
  }
}

// The session has put the members of a pool into one buffer.
function poolMemory(entry: Entry, pool: number, storage: Storage): GPUBuffer {
  return storage(entry.buffers.find((buffer) => buffer.pool === pool)!.name).buffer;
}

// The words of a buffer that a strided tensor spans, from its first element to its last.
function placeOf(readable: Readable, symbols: SymbolValues, staged: number): ResultPlace {
  const shape = evaluateShape(readable.shape, symbols);
  const strides = evaluateShape(readable.strides, symbols);
  const offset = readable.offset.evaluate(symbols);
  const width = bitsOf(readable.dtype) / 8;
  let first = offset;
  let end = offset + 1;
  shape.forEach((size, axis) => {
    const reach = (size - 1) * strides[axis]!;
    if (reach < 0) first += reach;
    else end += reach;
  });
  if (shape.includes(0)) first = end = offset;
  const from = Math.floor((first * width) / 4) * 4;
  return { readable, shape, strides, start: offset - from / width, from, bytes: wholeWords(end * width - from), staged };
}
