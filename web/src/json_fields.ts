import { FileError } from "./errors.js";

// Reads untrusted JSON: a missing field, or one of the wrong type, is a FileError that names it.

export type JsonObject = Record<string, unknown>;

export function parseJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new FileError(`${what} is not valid JSON: ${(error as Error).message}`);
  }
}

export function asObject(value: unknown, what: string): JsonObject {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new FileError(`${what} is not an object`);
  return value as JsonObject;
}

export function asList(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new FileError(`${what} is not a list`);
  return value;
}

export function asText(value: unknown, what: string): string {
  if (typeof value !== "string") throw new FileError(`${what} is not a string`);
  return value;
}

export function asFlag(value: unknown, what: string): boolean {
  if (typeof value !== "boolean") throw new FileError(`${what} is neither true nor false`);
  return value;
}

export function asNumber(value: unknown, what: string): number {
  if (typeof value !== "number") throw new FileError(`${what} is not a number`);
  return value;
}

/** A whole number from `low` up to, but not including, `end`. */
export function asIndex(value: unknown, what: string, end = Number.MAX_SAFE_INTEGER, low = 0): number {
  const number = asNumber(value, what);
  if (!Number.isSafeInteger(number) || number < low || number >= end)
    throw new FileError(`${what} is ${number}, which is out of range`);
  return number;
}
