import { FileError } from "../errors.js";

// Several byte strings with a description, as the C interface takes and returns them (jerboa_c.h).

export interface Bundle {
  readonly value: unknown;
  readonly parts: readonly Uint8Array<ArrayBuffer>[];
}

const alignment = 8;
const lengthBytes = 8;
const aligned = (bytes: number) => Math.ceil(bytes / alignment) * alignment;

export function writeBundle(value: unknown, parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const header = new TextEncoder().encode(JSON.stringify({ parts: parts.map((part) => part.length), value }));
  const places: number[] = [];
  let end = aligned(lengthBytes + header.length);
  for (const part of parts) {
    places.push(end);
    end = aligned(end + part.length);
  }
  const bytes = new Uint8Array(end);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(header.length), true);
  bytes.set(header, lengthBytes);
  parts.forEach((part, i) => bytes.set(part, places[i]!));
  return bytes;
}

/** The parts are views into the bytes. */
export function readBundle(bytes: Uint8Array<ArrayBuffer>): Bundle {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(lengthBytes, lengthBytes + length))) as { parts: number[]; value: unknown };
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let place = aligned(lengthBytes + length);
  for (const size of header.parts) {
    if (place + size > bytes.length) throw new FileError("a bundle is cut off");
    parts.push(bytes.subarray(place, place + size));
    place = aligned(place + size);
  }
  return { value: header.value, parts };
}
