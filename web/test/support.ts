import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after } from "node:test";

import { create } from "webgpu";

import { openDevice } from "../src/index.js";
import { readSections, writeSections } from "../src/sections.js";

/** The folder that tests/web exported its cases to. */
export const casesFolder = process.env["JERBOA_WEB_CASES"] ?? "../build/release/web-cases";

/** The goldens of the model families, and the program that compiles a config.json natively (tests/c_api). */
export const goldensFolder = "../tests/data/goldens";
export const nativeCompiler = process.env["JERBOA_COMPILE_MODEL"] ?? "../build/release/bin/compile_model";

export const readCase = (name: string) => async (file: string) => new Uint8Array(await readFile(join(casesFolder, name, file)));

export const gpu = create([]) as unknown as GPU;

// Node 20 can hang when it waits for V8's threads with nothing else to do, so a timer keeps it busy.
const busy = setInterval(() => undefined, 20);
after(() => clearInterval(busy));

let shared: Promise<GPUDevice> | undefined;
after(async () => (await shared)?.destroy());

/** Runs a test with the shared device, whose pipelines are compiled only once. */
export async function withDevice(body: (device: GPUDevice) => Promise<void>): Promise<void> {
  await body(await (shared ??= openDevice({ gpu })));
}

/** Runs a test with a new device, which it may change. */
export async function withOwnDevice(body: (device: GPUDevice) => Promise<void>): Promise<void> {
  const device = await openDevice({ gpu });
  try {
    await body(device);
  } finally {
    device.destroy();
  }
}

/** The JSON sections of a program file. */
export interface Contents {
  needs: any;
  programs: any;
  code: any;
  indices: any;
  rates: any;
  checks: any;
}

const jsonSections = { NEED: "needs", PROG: "programs", "GPU ": "code", INDX: "indices", RATE: "rates", CHCK: "checks" } as const;

/** A program file with changed JSON and valid checksums. */
export function changed(file: Uint8Array, change: (contents: Contents) => void): Uint8Array {
  const sections = readSections(file);
  const contents = { needs: {}, programs: {}, code: {}, indices: [], rates: [], checks: [] } as Contents;
  for (const { kind, bytes } of sections)
    if (kind in jsonSections) contents[jsonSections[kind as keyof typeof jsonSections]] = JSON.parse(new TextDecoder().decode(bytes));
  change(contents);
  const encode = (kind: string) => new TextEncoder().encode(JSON.stringify(contents[jsonSections[kind as keyof typeof jsonSections]]));
  return writeSections(sections.map((section) => (section.kind in jsonSections ? { ...section, bytes: encode(section.kind) } : section)));
}

/** A program file with just one of its entries. */
export const onlyEntry = (file: Uint8Array, name: string) =>
  changed(file, (contents) => {
    const kept = contents.programs.entries.findIndex((entry: { name: string }) => entry.name === name);
    for (const list of [contents.programs.entries, contents.code, contents.indices, contents.rates, contents.checks]) list.splice(0, list.length, list[kept]);
  });
