import { type Gpu, GpuUsage } from "./device.js";
import { UsageError } from "./errors.js";

/** The durations of a run's steps. */
export interface StepTimes {
  /** Whether the device measured them. Otherwise each is the time from submit to completion, measured by the host. */
  readonly areTimestamps: boolean;
  /** By step; copies, which the device does not measure, count as 0. */
  readonly milliseconds: readonly number[];
}

/** Encodes a step; its pass writes `timestamps`, if given. */
export type EncodeStep = (encoder: GPUCommandEncoder, number: number, timestamps?: GPUComputePassTimestampWrites) => void;

const maxQueries = 4096;

/** Runs steps in order, with timestamps if the device has them. */
export async function timeSteps(gpu: Gpu, name: string, count: number, encode: EncodeStep): Promise<StepTimes> {
  if (!gpu.device.features.has("timestamp-query")) return { areTimestamps: false, milliseconds: await timeSubmits(gpu, name, count, encode) };
  if (2 * count > maxQueries) throw new UsageError(`entry ${name} has ${count} steps; at most ${maxQueries / 2} can be timed`);
  return { areTimestamps: true, milliseconds: await readTimestamps(gpu, name, count, encode) };
}

async function readTimestamps(gpu: Gpu, name: string, count: number, encode: EncodeStep): Promise<number[]> {
  const { device } = gpu;
  const querySet = device.createQuerySet({ type: "timestamp", count: Math.max(2, 2 * count), label: name });
  const resolved = device.createBuffer({ size: Math.max(16, 16 * count), usage: GpuUsage.timestamps, label: "timestamps" });
  try {
    await gpu.validated(`profiling entry ${name}`, () => {
      const encoder = device.createCommandEncoder({ label: name });
      for (let number = 0; number < count; ++number)
        encode(encoder, number, { querySet, beginningOfPassWriteIndex: 2 * number, endOfPassWriteIndex: 2 * number + 1 });
      encoder.resolveQuerySet(querySet, 0, 2 * count, resolved, 0);
      device.queue.submit([encoder.finish()]);
    });
    const bytes = await gpu.read(resolved, 16 * count);
    const times = new BigUint64Array(bytes.buffer, 0, 2 * count);
    return Array.from({ length: count }, (_, number) => Math.max(0, Number(times[2 * number + 1]! - times[2 * number]!)) / 1e6);
  } finally {
    querySet.destroy();
    resolved.destroy();
  }
}

async function timeSubmits(gpu: Gpu, name: string, count: number, encode: EncodeStep): Promise<number[]> {
  const { device } = gpu;
  const milliseconds: number[] = [];
  for (let number = 0; number < count; ++number) {
    const began = performance.now();
    await gpu.validated(`profiling entry ${name}`, () => {
      const encoder = device.createCommandEncoder({ label: name });
      encode(encoder, number);
      device.queue.submit([encoder.finish()]);
    });
    await gpu.wait(device.queue.onSubmittedWorkDone());
    milliseconds.push(performance.now() - began);
  }
  return milliseconds;
}
