import { type Gpu, GpuUsage } from "./device.js";

/** How many free buffers are kept. */
const maxFree = 4;
const smallest = 256;
const largeStep = 2 ** 20;

// Few distinct sizes, so that results of different shapes can share buffers.
function rounded(bytes: number): number {
  if (bytes > largeStep) return Math.ceil(bytes / largeStep) * largeStep;
  return Math.max(smallest, 2 ** Math.ceil(Math.log2(Math.max(1, bytes))));
}

/** Buffers through which results are read back. Creating them is slow, so a few that are free are kept. */
export class StagingPool {
  private readonly free: GPUBuffer[] = []; // most recently used last
  private destroyed = false;

  constructor(private readonly gpu: Gpu) {}

  take(bytes: number): GPUBuffer {
    const wanted = rounded(bytes);
    const limit = this.gpu.device.limits.maxBufferSize;
    const size = wanted > limit ? bytes : wanted;
    const found = this.free.findLastIndex((buffer) => buffer.size === size);
    if (found >= 0) return this.free.splice(found, 1)[0]!;
    return this.gpu.device.createBuffer({ size, usage: GpuUsage.readback, label: "results" });
  }

  give(buffer: GPUBuffer): void {
    this.free.push(buffer);
    while (this.free.length > (this.destroyed ? 0 : maxFree)) this.free.shift()!.destroy();
  }

  /** Buffers that are returned later are destroyed at once. */
  destroy(): void {
    this.destroyed = true;
    for (const buffer of this.free.splice(0)) buffer.destroy();
  }
}
