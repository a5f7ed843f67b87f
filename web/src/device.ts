import { asOptions, described, unshared } from "./checks.js";
import { DeviceError, DeviceLostError, JerboaError, OutOfMemoryError, UnsupportedError, UsageError } from "./errors.js";
import { Naps, isNode } from "./naps.js";
import { Pipelines } from "./pipelines.js";
import { type Entry, allocated } from "./program_file.js";

export interface OpenDeviceOptions {
  /** By default the browser's; under Node `create([])` of npm webgpu. */
  readonly gpu?: GPU | undefined;
  readonly powerPreference?: GPUPowerPreference;
}

const wantedLimits = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
] as const;
const wantedFeatures: readonly GPUFeatureName[] = ["shader-f16", "subgroups", "timestamp-query"];

// A device of npm `webgpu` crashes the process once its GPU object is garbage-collected, so these are kept forever.
const gpus = new Set<GPU>();

function noWebGpu(): string {
  if (isNode) return 'Node has no WebGPU of its own: run `npm install webgpu`, import { create } from "webgpu", and pass { gpu: create([]) } as an option';
  if (globalThis.isSecureContext === false) return "WebGPU is only available to pages from https or from http://127.0.0.1";
  if (globalThis.navigator === undefined || globalThis.document !== undefined) return "this browser has no WebGPU";
  return "there is no WebGPU here";
}

/** Opens a device with every feature of its adapter that programs use. Throws DeviceError that says what is missing. */
export async function openDevice(options: OpenDeviceOptions = {}): Promise<GPUDevice> {
  const { gpu: given, powerPreference = "high-performance" } = asOptions(options, "the options of openDevice");
  const gpu = given ?? (globalThis.navigator as Navigator | undefined)?.gpu;
  if (gpu === undefined) throw new DeviceError(noWebGpu());
  if (typeof gpu?.requestAdapter !== "function") throw new UsageError(`the option gpu must be a GPU, such as navigator.gpu, not ${described(gpu)}`);
  gpus.add(gpu);
  const adapter = await gpu.requestAdapter({ powerPreference });
  if (adapter === null) throw new DeviceError("WebGPU is available, but finds no graphics device that it may use");
  const requiredLimits = Object.fromEntries(wantedLimits.map((limit) => [limit, adapter.limits[limit]]));
  const requiredFeatures = wantedFeatures.filter((feature) => adapter.features.has(feature));
  return adapter.requestDevice({ requiredLimits, requiredFeatures });
}

function wholeWords(bytes: number): number {
  return Math.ceil(bytes / 4) * 4;
}

/** A device with its pipelines and state. There is one per GPUDevice. */
export class Gpu {
  private static readonly known = new WeakMap<GPUDevice, Gpu>();
  readonly pipelines = new Pipelines(this);
  private loss: DeviceLostError | undefined;
  private readonly waiting = new Set<(error: DeviceLostError) => void>();
  private readonly naps: Naps;

  static of(device: GPUDevice): Gpu {
    let gpu = Gpu.known.get(device);
    if (gpu === undefined) {
      gpu = new Gpu(device);
      Gpu.known.set(device, gpu);
    }
    return gpu;
  }

  private constructor(readonly device: GPUDevice) {
    this.naps = new Naps(device);
    void device.lost.then((info) => {
      const text = info.message === "" ? "no reason given" : info.message;
      this.loss = new DeviceLostError(`the WebGPU device is lost: ${text}; open a new one and make a new session on it`, info.reason);
      for (const reject of this.waiting) reject(this.loss);
      this.waiting.clear();
    });
  }

  /** Throws DeviceLostError if the device is lost. */
  check(): void {
    if (this.loss !== undefined) throw this.loss;
  }

  /** Awaits work on the device; rejects if the device is lost. */
  wait<T>(work: Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      if (this.loss !== undefined) {
        work.catch(() => undefined);
        reject(this.loss);
        return;
      }
      const wake = this.naps.begin();
      const fail = (error: DeviceLostError) => {
        wake();
        reject(error);
      };
      this.waiting.add(fail);
      const done = () => {
        if (this.waiting.delete(fail)) wake();
      };
      work.then(
        (value) => {
          done();
          resolve(value);
        },
        (error: unknown) => {
          // A lost device rejects pending work before it reports the loss.
          setTimeout(() => {
            done();
            reject(error);
          }, 50);
        },
      );
    });
  }

  /** Runs `body` at once; rejects with a DeviceError if the device reports an error. */
  async validated<T>(what: string, body: () => T): Promise<T> {
    this.check();
    this.device.pushErrorScope("out-of-memory");
    this.device.pushErrorScope("validation");
    let result: T;
    let invalid: Promise<GPUError | null>;
    let full: Promise<GPUError | null>;
    try {
      result = body();
    } finally {
      invalid = this.device.popErrorScope();
      full = this.device.popErrorScope();
      for (const errors of [invalid, full]) errors.catch(() => undefined);
    }
    const outOfMemory = await this.wait(full);
    if (outOfMemory !== null) throw new OutOfMemoryError(`${what}: the device has no more memory: ${outOfMemory.message}`);
    const error = await this.wait(invalid);
    if (error !== null) throw new DeviceError(`${what}: ${error.message}`);
    return result;
  }

  write(buffer: GPUBuffer, data: Uint8Array, offset = 0): void {
    const bytes = unshared(data);
    const whole = bytes.length - (bytes.length % 4);
    if (whole > 0) this.device.queue.writeBuffer(buffer, offset, bytes, 0, whole);
    if (whole === bytes.length) return;
    const rest = new Uint8Array(4);
    rest.set(bytes.subarray(whole));
    this.device.queue.writeBuffer(buffer, offset + whole, rest);
  }

  /** Reads a buffer once all submitted work is done. */
  async read(buffer: GPUBuffer, bytes: number, offset = 0): Promise<Uint8Array<ArrayBuffer>> {
    const size = Math.max(4, wholeWords(bytes));
    let staging: GPUBuffer | undefined;
    try {
      await this.validated("reading back", () => {
        staging = this.device.createBuffer({ size, usage: GpuUsage.readback, label: "readback" });
        const encoder = this.device.createCommandEncoder();
        encoder.copyBufferToBuffer(buffer, offset, staging, 0, size);
        this.device.queue.submit([encoder.finish()]);
      });
      return await this.map(staging!, bytes);
    } finally {
      staging?.destroy();
    }
  }

  /** A copy of the first bytes of a mappable buffer. */
  async map(staging: GPUBuffer, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    try {
      await this.wait(staging.mapAsync(GpuUsage.mapRead));
    } catch (error) {
      if (error instanceof JerboaError) throw error;
      throw new DeviceError(`reading back: ${(error as Error).message}`);
    }
    const copy = new Uint8Array(staging.getMappedRange()).slice(0, bytes);
    staging.unmap();
    return copy;
  }
}

// Values from the standard: its globals do not exist outside of browsers.
export const GpuUsage = {
  mapRead: 0x1,
  readback: 0x1 | 0x8, // MAP_READ | COPY_DST
  storage: 0x80 | 0x8 | 0x4, // STORAGE | COPY_DST | COPY_SRC
  uniform: 0x40 | 0x8, // UNIFORM | COPY_DST
  computeStage: 0x4,
  timestamps: 0x200 | 0x4, // QUERY_RESOLVE | COPY_SRC
} as const;

/** Buffers that are created and destroyed together. */
export class BufferSet {
  private readonly buffers: GPUBuffer[] = [];
  private readonly checks: Promise<void>[] = [];

  constructor(private readonly gpu: Gpu) {}

  create(bytes: number, name: string, usage: number = GpuUsage.storage): GPUBuffer {
    const { device } = this.gpu;
    const size = allocated(bytes);
    if (size > device.limits.maxBufferSize)
      throw new OutOfMemoryError(`${name} takes ${size} bytes, but the device allows buffers of ${device.limits.maxBufferSize}`);
    device.pushErrorScope("out-of-memory");
    const buffer = device.createBuffer({ size, usage, label: name });
    const check = this.gpu.wait(device.popErrorScope()).then((error) => {
      if (error !== null) throw new OutOfMemoryError(`the device has no room for ${name} (${size} bytes): ${error.message}`);
    });
    check.catch(() => undefined);
    this.checks.push(check);
    this.buffers.push(buffer);
    return buffer;
  }

  /** Throws OutOfMemoryError that names the first buffer that did not fit. */
  async check(): Promise<void> {
    await Promise.all(this.checks.splice(0));
  }

  /** Takes over the buffers of another set, which becomes empty. */
  take(other: BufferSet): void {
    this.buffers.push(...other.buffers.splice(0));
    this.checks.push(...other.checks.splice(0));
  }

  /** Destroys one of the buffers. */
  free(buffer: GPUBuffer): void {
    this.buffers.splice(this.buffers.indexOf(buffer), 1);
    buffer.destroy();
  }

  destroy(): void {
    for (const buffer of this.buffers.splice(0)) buffer.destroy();
  }
}

/** Throws UnsupportedError that names every feature and limit that the entries need and the device lacks. */
export function requireSupport(device: GPUDevice, entries: readonly Entry[]): void {
  const missing = new Set<string>();
  const needLimit = (limit: (typeof wantedLimits)[number], needed: number) => {
    const offered = device.limits[limit];
    if (needed > offered) missing.add(`${limit} of ${needed} (the device has ${offered})`);
  };
  const most = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), 0);
  for (const entry of entries) {
    if (entry.usesF16 && !device.features.has("shader-f16")) missing.add("the feature shader-f16");
    if (entry.usesSubgroups && !device.features.has("subgroups")) missing.add("the feature subgroups");
    const matrices = "chromium-experimental-subgroup-matrix";
    if (entry.usesSubgroupMatrices && !device.features.has(matrices)) missing.add(`the feature ${matrices}`);
    const dispatched = entry.steps.filter((step) => step.shader !== undefined);
    needLimit("maxStorageBuffersPerShaderStage", most(dispatched.map((step) => step.bindings.length)));
    needLimit("maxStorageBufferBindingSize", most(dispatched.flatMap((step) => step.bindings.map((binding) => binding.bytes))));
    needLimit("maxComputeInvocationsPerWorkgroup", most(dispatched.map((step) => step.shader!.threads)));
    needLimit("maxComputeWorkgroupStorageSize", most(dispatched.map((step) => step.shader!.workgroupBytes)));
    needLimit("maxBufferSize", most([...entry.arenas, ...entry.buffers.map((buffer) => buffer.bytes)]));
  }
  if (missing.size > 0) throw new UnsupportedError(`this device lacks what the program needs: ${[...missing].join("; ")}`, [...missing]);
}
