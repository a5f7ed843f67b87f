import type { Gpu } from "./device.js";
import { UsageError, listed } from "./errors.js";
import { bf16ToF32, f16ToF32 } from "./float16.js";
import type { Readable } from "./program_file.js";
import { type Tensor, bitsOf, elementCount, fromBytes, typeText } from "./tensor.js";

/** The location of an output in a run's copy of the results. */
export interface ResultPlace {
  readonly readable: Readable;
  readonly shape: readonly number[];
  /** In elements. */
  readonly strides: readonly number[];
  /** Position of the first element in the copy, in elements. */
  readonly start: number;
  /** Offset in the program's buffer, length, and offset in the copy, in bytes. */
  readonly from: number;
  readonly bytes: number;
  readonly staged: number;
}

/** The outputs of a run, and the requested captures. Reading one waits for the device. */
export class RunResult {
  private readonly places: ReadonlyMap<string, ResultPlace>;
  private bytes: Promise<Uint8Array> | undefined;

  constructor(
    private readonly gpu: Gpu,
    private readonly staging: GPUBuffer,
    private readonly stagedBytes: number,
    places: readonly ResultPlace[],
    /** Results that are read but not listed. */
    private readonly unlisted: ReadonlySet<string>,
    /** Called once, when the buffer is no longer needed, with whether it can be used again. */
    private readonly release: (reusable: boolean) => void,
  ) {
    this.places = new Map(places.map((place) => [place.readable.name, place]));
  }

  get names(): string[] {
    return [...this.places.keys()].filter((name) => !this.unlisted.has(name));
  }

  shapeOf(name: string): readonly number[] {
    return this.find(name).shape;
  }

  async read(name: string): Promise<Tensor> {
    const place = this.find(name);
    this.moveToHost();
    return gather(await this.bytes!, place);
  }

  /** The only element of a scalar output, such as a loss. */
  async number(name: string): Promise<number> {
    const { dtype, shape, data } = await this.read(name);
    if (data.length !== 1) throw new UsageError(`${name} is ${typeText(dtype, shape)}, not one number`);
    if (dtype === "f16") return f16ToF32(data[0]!);
    return dtype === "bf16" ? bf16ToF32(data[0]!) : data[0]!;
  }

  /** Copies everything to host memory once the device is done, and frees the device memory. */
  moveToHost(): void {
    if (this.bytes !== undefined) return;
    this.bytes = this.take();
    this.bytes.catch(() => undefined); // reported to readers
  }

  /** Frees the device memory of an unread result. */
  destroy(): void {
    if (this.bytes !== undefined) return;
    this.bytes = Promise.reject(new UsageError("the result was destroyed"));
    this.bytes.catch(() => undefined);
    this.release(true);
  }

  private find(name: string): ResultPlace {
    const place = this.places.get(name);
    if (place === undefined) throw new UsageError(`the run has no output or capture ${name}; available: ${listed(this.names)}`);
    return place;
  }

  private async take(): Promise<Uint8Array> {
    let mapped = false;
    try {
      const bytes = await this.gpu.map(this.staging, this.stagedBytes);
      mapped = true;
      return bytes;
    } finally {
      this.release(mapped);
    }
  }
}

function isRowMajor(shape: readonly number[], strides: readonly number[]): boolean {
  return shape.every((size, axis) => size <= 1 || strides[axis] === elementCount(shape.slice(axis + 1)));
}

// The elements in row-major order.
function gather(bytes: Uint8Array, place: ResultPlace): Tensor {
  const width = bitsOf(place.readable.dtype) / 8;
  const { shape, strides } = place;
  const count = elementCount(shape);
  if (isRowMajor(shape, strides)) {
    const from = place.staged + place.start * width;
    return fromBytes(place.readable.dtype, shape, bytes.subarray(from, from + count * width));
  }
  const values = new Uint8Array(count * width);
  const index = shape.map(() => 0);
  let at = place.start;
  for (let i = 0; i < count; ++i) {
    const from = place.staged + at * width;
    for (let k = 0; k < width; ++k) values[i * width + k] = bytes[from + k]!;
    for (let axis = shape.length - 1; axis >= 0; --axis) {
      at += strides[axis]!;
      if (++index[axis]! < shape[axis]!) break;
      at -= strides[axis]! * shape[axis]!;
      index[axis] = 0;
    }
  }
  return fromBytes(place.readable.dtype, shape, values);
}
