// curl, and how the command begins and ends.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { serve } from "./live.js";

const curl = async (...args) => (await promisify(execFile)("curl", ["-sS", "--max-time", "60", ...args])).stdout;
const body = (more) => JSON.stringify({ messages: [{ role: "user", content: "Hello" }], max_tokens: 8, temperature: 0, ...more });

test("curl gets answers and streams", async () => {
  const server = await serve();
  const chat = `${server.address}/v1/chat/completions`;
  const whole = JSON.parse(await curl(chat, "-H", "Content-Type: application/json", "-d", body()));
  const stream = await curl("-N", chat, "-d", body({ stream: true }));
  const text = stream.split("\n\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)).choices[0].delta.content ?? "").join("");
  assert.equal(text, whole.choices[0].message.content);
  assert.ok(stream.endsWith("data: [DONE]\n\n"));
  assert.deepEqual(JSON.parse(await curl(`${server.address}/health`)), { status: "ok" });
  assert.match(await curl(`${server.address}/metrics`), /jerboa_generated_tokens_total\{model="tiny"\} 16\n/);
  assert.match(await curl("-I", `${server.address}/`), /^HTTP\/1.1 200 OK/);
  const large = join(mkdtempSync(join(tmpdir(), "jerboa-large-")), "body");
  writeFileSync(large, body({ user: "x".repeat(9 << 20) }));
  assert.equal(await curl(chat, "-w", "%{http_code}", "-o", "/dev/null", "--data-binary", `@${large}`), "413");
  assert.equal(await server.stop(), 0);
});

test("other pages and names are refused", async () => {
  const server = await serve("--cors", "https://page.example");
  const status = (...args) => curl("-o", "/dev/null", "-w", "%{http_code}", `${server.address}/v1/models`, ...args);
  assert.equal(await status(), "200");
  assert.equal(await status("-H", "Origin: https://evil.example"), "403");
  assert.equal(await status("-H", "Host: evil.example"), "403");
  assert.match(await curl("-i", `${server.address}/v1/models`, "-H", "Origin: https://page.example"), /Access-Control-Allow-Origin: https:\/\/page.example/);
  assert.equal(await status("-X", "OPTIONS", "-H", "Origin: https://page.example"), "204");
  assert.equal(await server.stop(), 0);
});

test("SIGTERM lets answers finish", async () => {
  const server = await serve();
  let isDone = false;
  const answer = curl("-N", `${server.address}/v1/chat/completions`, "-d", body({ stream: true, max_tokens: 1900 })).finally(() => (isDone = true));
  const unfinished = async () => (await (await fetch(`${server.address}/v1/metrics`)).json()).models[0].requests_unfinished;
  while (!isDone && (await unfinished()) === 0);
  server.signal("SIGTERM");
  assert.ok((await answer).endsWith("data: [DONE]\n\n"));
  assert.equal(await server.exited, 0);
});
