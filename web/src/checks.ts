import { UsageError } from "./errors.js";

// Pages are often plain JavaScript, so callers may pass in any type: these functions turn a wrong one into a UsageError
// that describes what was given.

/** "null", "an Array", "a Float64Array", "the number 0.5": for errors that say what was given. */
export function described(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean") return `the ${typeof value} ${value}`;
  if (typeof value !== "object") return `a ${typeof value}`;
  const name = typeName(value);
  return `${/^[AEIOU]/.test(name) && !/^U[a-z]nt/.test(name) ? "an" : "a"} ${name}`;
}

/** The name of a built-in type, also for objects of another frame or worker, where instanceof fails. */
export function typeName(value: object): string {
  return Object.prototype.toString.call(value).slice("[object ".length, -1);
}

function isShared(buffer: ArrayBufferLike): buffer is SharedArrayBuffer {
  return typeName(buffer) === "SharedArrayBuffer";
}

/** Bytes that the host can use directly: a copy if they are shared, which WebGPU does not accept. */
export function unshared(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return isShared(bytes.buffer) ? new Uint8Array(bytes) : (bytes as Uint8Array<ArrayBuffer>);
}

/** The bytes of a file that the caller has read. */
export function asBytes(value: unknown, what: string): Uint8Array<ArrayBuffer> {
  if (typeof value === "object" && value !== null) {
    const name = typeName(value);
    if (name === "Uint8Array") return unshared(value as Uint8Array);
    if (name === "ArrayBuffer" || name === "SharedArrayBuffer") return unshared(new Uint8Array(value as ArrayBufferLike));
  }
  throw new UsageError(`${what} must be a Uint8Array or an ArrayBuffer, not ${described(value)}`);
}

/** The 64 bits of a seed. */
export function asSeed(value: unknown): bigint {
  if (typeof value === "bigint") return BigInt.asUintN(64, value);
  if (typeof value === "number" && Number.isSafeInteger(value)) return BigInt.asUintN(64, BigInt(value));
  throw new UsageError(`a seed must be a whole number, not ${described(value)}`);
}

/** A whole number that is at least `least`. */
export function asCount(value: unknown, what: string, least = 0): number {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= least) return value;
  throw new UsageError(`${what} must be a whole number from ${least}, not ${described(value)}`);
}

/** The fields of an object that the caller may leave out. */
export function asOptions<T extends object>(value: T | undefined, what: string): Partial<T> {
  if (value === undefined) return {};
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  throw new UsageError(`${what} must be an object, not ${described(value)}`);
}

/** As JSON, which has neither big integers nor cycles. */
export function asJson(value: unknown, what: string): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw new UsageError(`${what} cannot be written as JSON: ${(error as Error).message.split("\n")[0]}`);
  }
}

/** A list of names, or nothing. */
export function asNames(value: unknown, what: string): readonly string[] | undefined {
  if (value === undefined) return undefined;
  if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
  throw new UsageError(`${what} must be a list of names, not ${described(value)}`);
}
