import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { Compiler, type DeviceDescription } from "../src/compiler/compiler.js";
import { nativeCompiler, readCase } from "./support.js";

// Training steps and other graphs, compiled in WASM and by the native shared library of the same compiler.

const devices: readonly DeviceDescription[] = [
  {},
  { info: { isFallbackAdapter: true } },
  {
    limits: { maxBufferSize: 2 ** 32, maxStorageBufferBindingSize: 2 ** 31, maxStorageBuffersPerShaderStage: 10, maxComputeWorkgroupStorageSize: 32768 },
    features: ["shader-f16", "subgroups"],
    info: { subgroupMinSize: 32, subgroupMaxSize: 32 },
  },
];

test("native and WASM compile graphs to the same bytes", async () => {
  const compiler = await Compiler.load();
  const entries = JSON.parse(new TextDecoder().decode(await readCase(".")("graphs.json"))) as Record<string, unknown>;
  assert.ok("step" in entries && "decode" in entries);
  const work = mkdtempSync(join(tmpdir(), "jerboa-"));
  try {
    const [request, program] = [join(work, "graphs.json"), join(work, "program")];
    for (const device of devices) {
      writeFileSync(request, JSON.stringify({ device, entries }));
      const { status, stderr } = spawnSync(nativeCompiler, [request, program], { encoding: "utf8" });
      assert.equal(status, 0, stderr);
      assert.equal(Buffer.compare(readFileSync(program), compiler.compileGraphs(entries, device)), 0, JSON.stringify(device));
    }
  } finally {
    rmSync(work, { recursive: true });
  }
});
