import { UsageError } from "./errors.js";

/** Element types, as program files name them. */
export const dtypes = ["f32", "f16", "bf16", "i32", "u32", "boolean", "i8", "i4"] as const;
export type DType = (typeof dtypes)[number];

/** f16 and bf16 elements are 16-bit patterns, booleans 32-bit 0 or 1, two int4 share a byte. */
export type TensorData = Float32Array | Int32Array | Uint32Array | Uint16Array | Int8Array | Uint8Array;

/** A tensor in host memory: what goes into a session and what comes out of it. */
export interface Tensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: TensorData;
}

interface TypeRow {
  readonly bits: number;
  readonly array: new (buffer: ArrayBuffer) => TensorData;
}

const rows: Record<DType, TypeRow> = {
  f32: { bits: 32, array: Float32Array },
  f16: { bits: 16, array: Uint16Array },
  bf16: { bits: 16, array: Uint16Array },
  i32: { bits: 32, array: Int32Array },
  u32: { bits: 32, array: Uint32Array },
  boolean: { bits: 32, array: Uint32Array },
  i8: { bits: 8, array: Int8Array },
  i4: { bits: 4, array: Uint8Array },
};

export function bitsOf(dtype: DType): number {
  return rows[dtype].bits;
}

export function elementCount(shape: readonly number[]): number {
  return shape.reduce((count, size) => count * size, 1);
}

export function byteCount(dtype: DType, shape: readonly number[]): number {
  return Math.ceil((elementCount(shape) * bitsOf(dtype)) / 8);
}

/** The elements of a copy of the bytes. */
export function fromBytes(dtype: DType, shape: readonly number[], bytes: Uint8Array): Tensor {
  return { dtype, shape: [...shape], data: new rows[dtype].array(new Uint8Array(bytes).buffer) };
}

export function bytesOf(data: TensorData): Uint8Array<ArrayBuffer> {
  return new Uint8Array(data.buffer as ArrayBuffer, data.byteOffset, data.byteLength);
}

/** Whether an array's type holds elements of this dtype. */
export function holds(data: TensorData, dtype: DType): boolean {
  return data instanceof rows[dtype].array;
}

/** A tensor of numbers: f32 from a Float32Array, i32 from an Int32Array, u32 from a Uint32Array. */
export function tensor(data: Float32Array | Int32Array | Uint32Array, shape: readonly number[]): Tensor {
  const dtype = data instanceof Float32Array ? "f32" : data instanceof Int32Array ? "i32" : "u32";
  if (elementCount(shape) !== data.length)
    throw new UsageError(`a tensor of shape ${shapeText(shape)} has ${elementCount(shape)} elements, not ${data.length}`);
  return { dtype, shape: [...shape], data };
}

export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

export function typeText(dtype: DType, shape: readonly number[]): string {
  return `${dtype}${shapeText(shape)}`;
}
