import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Compiler, type ModelOptions } from "../src/compiler/compiler.js";
import { FileError, GraphError, UsageError } from "../src/errors.js";
import { goldensFolder, nativeCompiler } from "./support.js";

// The compiler in WASM, against the same compiler as a native shared library.

let compiler: Compiler;
const work = mkdtempSync(join(tmpdir(), "jerboa-"));
before(async () => {
  compiler = await Compiler.load();
});
after(() => rmSync(work, { recursive: true }));

const families = readdirSync(goldensFolder)
  .filter((name) => existsSync(join(goldensFolder, name, "config.json")))
  .sort();
const configOf = (family: string) => readFileSync(join(goldensFolder, family, "config.json"), "utf8");

interface Answer {
  readonly bytes?: Uint8Array;
  readonly error?: string;
}

function natively(config: string, options: ModelOptions): Answer {
  const [configFile, optionsFile, program] = ["config.json", "options.json", "program"].map((name) => join(work, name)) as [string, string, string];
  writeFileSync(configFile, config);
  writeFileSync(optionsFile, JSON.stringify(options));
  const run = spawnSync(nativeCompiler, [configFile, optionsFile, program], { encoding: "utf8" });
  assert.equal(run.error, undefined);
  return run.status === 0 ? { bytes: new Uint8Array(readFileSync(program)) } : { error: run.stderr.trim() };
}

function inWasm(config: string, options: ModelOptions): Answer {
  try {
    return { bytes: compiler.compileModel(config, options) };
  } catch (error) {
    return { error: (error as Error).message };
  }
}

const gpu: ModelOptions = {
  weights: "f16",
  cache: "f16",
  blocks: 16,
  device: {
    limits: { maxBufferSize: 2 ** 32, maxStorageBufferBindingSize: 2 ** 31, maxStorageBuffersPerShaderStage: 10, maxComputeWorkgroupStorageSize: 32768 },
    features: ["shader-f16", "subgroups"],
    info: { subgroupMinSize: 32, subgroupMaxSize: 32 },
  },
  entries: [
    { table: 4, drawing: "sampled", masked: true },
    { time: 32, table: 4, is_prompt: true, drawing: "greedy" },
  ],
};
const software: ModelOptions = { device: { info: { isFallbackAdapter: true } }, entries: [{ rows: 2, time: 8, is_prompt: true, outputs: 0 }] };

const encoder: ModelOptions = { device: { info: { isFallbackAdapter: true } }, entries: [{ encoder: true, rows: 2, time: 16, pooling: "mean", normalise: true }] };
const isEncoder = (family: string) => /bert|mpnet/.test(family);

// With JERBOA_ALL_FAMILIES=1 every family for both devices, otherwise each for one of them, in turns.
const isThorough = process.env["JERBOA_ALL_FAMILIES"] === "1";
const devicesFor = (index: number) => (isThorough ? [gpu, software] : [index % 2 === 0 ? gpu : software]);

test("native and WASM compile every family to the same bytes", () => {
  let programs = 0;
  for (const [index, family] of families.entries())
    for (const options of [...devicesFor(index), ...(isEncoder(family) ? [encoder] : [])]) {
      const wanted = natively(configOf(family), options);
      const got = inWasm(configOf(family), options);
      assert.equal(got.error, wanted.error, family);
      assert.ok(wanted.bytes === undefined || Buffer.compare(wanted.bytes, got.bytes!) === 0, `${family}: other bytes`);
      programs += wanted.bytes === undefined ? 0 : 1;
    }
  assert.ok(programs >= (isThorough ? 78 : 39), `only ${programs} programs were compared`);
});

test("errors keep their class and text, and the compiler stays usable", () => {
  assert.throws(() => compiler.compileModel("{not JSON"), FileError);
  assert.throws(() => compiler.compileModel(configOf("llama"), { weights: "q4" as "int4" }), (error) => {
    assert.ok(error instanceof UsageError);
    assert.match(error.message, /weights is "q4", but must be one of f32, f16, bf16, int8, int4/);
    return true;
  });
  assert.throws(() => compiler.compileGraphs({ run: { version: 1 } }), GraphError);
  assert.ok(compiler.compileModel(configOf("llama")).length > 1000);
});

test("twelve compilations do not grow the compiler's memory", () => {
  const config = configOf("qwen3");
  const memory = () => compiler.module.memoryBytes;
  compiler.compileModel(config, gpu);
  const before = memory();
  for (let i = 0; i < 12; ++i) compiler.compileModel(config, gpu);
  assert.equal(memory(), before);
});

test("a visitor downloads at most a megabyte for the compiler", () => {
  // By gzip itself: Node's zlib is faster, and its result one percent larger.
  const packed = spawnSync("gzip", ["-9", "-c"], { input: readFileSync(new URL("../src/jerboa.wasm", import.meta.url)), maxBuffer: 1 << 24 });
  assert.equal(packed.status, 0, packed.error?.message);
  const bytes = packed.stdout.length;
  assert.ok(bytes <= 1_000_000, `jerboa.wasm is ${bytes} bytes gzipped; a larger one must lose something first`);
});
