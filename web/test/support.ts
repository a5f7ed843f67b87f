import { readFile } from "node:fs/promises";
import { join } from "node:path";

import { create } from "webgpu";

import { openDevice } from "../src/index.js";

/** Where tests/web exported its cases to. */
export const casesFolder = process.env["JERBOA_WEB_CASES"] ?? "../build/release/web-cases";

export const readCase = (name: string) => async (file: string) => new Uint8Array(await readFile(join(casesFolder, name, file)));

export const gpu = create([]) as unknown as GPU;

/** Runs a test with a device of its own. */
export async function withDevice(body: (device: GPUDevice) => Promise<void>): Promise<void> {
  const device = await openDevice({ gpu });
  try {
    await body(device);
  } finally {
    device.destroy();
  }
}

/** The header of a program file, changed, in a file as it was. */
export function changed(file: Uint8Array, change: (header: any) => void): Uint8Array {
  const length = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(8, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(16, 16 + length)));
  change(header);
  const text = new TextEncoder().encode(JSON.stringify(header));
  const fresh = new Uint8Array(16 + text.length + file.length - 16 - length);
  fresh.set(file.subarray(0, 8));
  new DataView(fresh.buffer).setBigUint64(8, BigInt(text.length), true);
  fresh.set(text, 16);
  fresh.set(file.subarray(16 + length), 16 + text.length);
  return fresh;
}
