import { asCount, described, typeName } from "./checks.js";
import { UsageError } from "./errors.js";

/** Element types, as program files name them. */
export const dtypes = ["f32", "f16", "bf16", "i32", "u32", "boolean", "i8", "i4"] as const;
export type DType = (typeof dtypes)[number];

/** f16 and bf16 elements are 16-bit patterns, booleans 32-bit 0 or 1, two int4 share a byte. */
export type TensorData = Float32Array | Int32Array | Uint32Array | Uint16Array | Int8Array | Uint8Array;

/** A tensor in host memory: an input or output of a session. */
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

/** A tensor with a copy of these bytes. */
export function fromBytes(dtype: DType, shape: readonly number[], bytes: Uint8Array): Tensor {
  return { dtype, shape: [...shape], data: new rows[dtype].array(new Uint8Array(bytes).buffer) };
}

export function bytesOf(data: TensorData): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** Throws UsageError unless `data` is an array for elements of this type, of this many bytes. */
export function checkData(data: unknown, dtype: DType, shape: readonly number[], what: string): asserts data is TensorData {
  const wanted = rows[dtype].array.name;
  const type = typeText(dtype, shape);
  if (!ArrayBuffer.isView(data) || typeName(data) !== wanted)
    throw new UsageError(`${what} is ${type}, whose elements are in a ${wanted}, but was given ${described(data)}`);
  const { length } = data as TensorData;
  if (data.byteLength !== byteCount(dtype, shape))
    throw new UsageError(`${what} is ${type}, which has ${elementCount(shape)} elements, but was given ${length}`);
}

/** Throws UsageError unless `value` is a Tensor whose data match its type and shape. */
export function checkTensor(value: unknown, what: string): asserts value is Tensor {
  const fields = (typeof value === "object" && value !== null ? value : {}) as Partial<Tensor>;
  if (fields.dtype === undefined || !Array.isArray(fields.shape))
    throw new UsageError(`${what} must be a tensor, with dtype, shape and data, not ${described(value)}`);
  if (!dtypes.includes(fields.dtype)) throw new UsageError(`${what} has the unknown type ${String(fields.dtype)}; available: ${dtypes.join(", ")}`);
  checkData(fields.data, fields.dtype, asShape(fields.shape, `the shape of ${what}`), what);
}

export function asShape(value: unknown, what: string): readonly number[] {
  if (!Array.isArray(value)) throw new UsageError(`${what} must be a list of sizes, not ${described(value)}`);
  return value.map((size) => asCount(size, what));
}

const numbers: Readonly<Record<string, DType>> = { Float32Array: "f32", Int32Array: "i32", Uint32Array: "u32" };

/** A tensor of numbers: f32 from a Float32Array, i32 from an Int32Array, u32 from a Uint32Array. */
export function tensor(data: Float32Array | Int32Array | Uint32Array, shape: readonly number[]): Tensor {
  const dtype = ArrayBuffer.isView(data) ? numbers[typeName(data)] : undefined;
  if (dtype === undefined)
    throw new UsageError(`a tensor is made from a Float32Array, an Int32Array or a Uint32Array, not from ${described(data)}`);
  const sizes = [...asShape(shape, "a tensor's shape")];
  if (elementCount(sizes) !== data.length)
    throw new UsageError(`a tensor of shape ${shapeText(sizes)} has ${elementCount(sizes)} elements, not ${data.length}`);
  return { dtype, shape: sizes, data };
}

export function shapeText(shape: readonly number[]): string {
  return `[${shape.join(", ")}]`;
}

export function typeText(dtype: DType, shape: readonly number[]): string {
  return `${dtype}${shapeText(shape)}`;
}
