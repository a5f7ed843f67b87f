// curl, and the command's start and shutdown.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { program, serve } from "./live.js";

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

test("curl calls tools, whole and in streams", async () => {
  const server = await serve();
  const chat = `${server.address}/v1/chat/completions`;
  const add = { type: "function", function: { name: "add", parameters: { type: "object", properties: { a: { type: "integer", minimum: 0, maximum: 9 } }, required: ["a"] } } };
  const asked = { tools: [add], tool_choice: "required", max_tokens: 100, temperature: 1 };
  const { message, finish_reason } = JSON.parse(await curl(chat, "-d", body(asked))).choices[0];
  assert.equal(finish_reason, "tool_calls");
  assert.ok(Number.isInteger(JSON.parse(message.tool_calls[0].function.arguments).a));
  const stream = await curl("-N", chat, "-d", body({ ...asked, stream: true }));
  const calls = stream.split("\n\n").filter((line) => line.startsWith("data: {")).flatMap((line) => JSON.parse(line.slice(6)).choices[0].delta.tool_calls ?? []);
  assert.equal(calls[0].function.name, "add");
  assert.ok(Number.isInteger(JSON.parse(calls.map((call) => call.function.arguments).join("")).a));
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "7" };
  const next = JSON.parse(await curl(chat, "-d", body({ tools: [add], messages: [{ role: "user", content: "Hello" }, message, result] })));
  assert.equal(next.usage.completion_tokens, 8);
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

test("a server that others can reach without a key prints a warning", async () => {
  for (const [options, expected] of [[[], /^$/], [["--host", "0.0.0.0"], /^warning: anyone who can reach 0\.0\.0\.0 can use this server; --api-key asks for a key$/m], [["--host", "0.0.0.0", "--api-key", "x"], /^$/]]) {
    const server = await serve("--lazy", ...options);
    assert.equal(await server.stop(), 0);
    assert.match(server.log(), expected);
  }
  const empty = (args, env) => promisify(execFile)(program, ["serve", tmpdir(), ...args], { env: { ...process.env, ...env } });
  await assert.rejects(empty(["--api-key", ""]), ({ code, stderr }) => code === 2 && /--api-key is empty/.test(stderr));
  await assert.rejects(empty([], { JERBOA_API_KEY: "" }), ({ code, stderr }) => code === 2 && /JERBOA_API_KEY is empty/.test(stderr));
});

// The text of a stream, complete or cut off.
async function begin(server, tokens) {
  let isDone = false;
  const answer = curl("-N", `${server.address}/v1/chat/completions`, "-d", body({ stream: true, max_tokens: tokens }))
    .catch((error) => error.stdout) // which is cut
    .finally(() => (isDone = true));
  const unfinished = async () => (await (await fetch(`${server.address}/v1/metrics`)).json()).models[0].requests_unfinished;
  while (!isDone && (await unfinished()) === 0);
  return { answer };
}

test("SIGTERM lets answers finish", async () => {
  const server = await serve();
  const { answer } = await begin(server, 1900);
  server.signal("SIGTERM");
  assert.ok((await answer).endsWith("data: [DONE]\n\n"));
  assert.equal(await server.exited, 0);
});

test("a second signal, or the end of --drain, ends a server with unfinished answers", async () => {
  for (const [options, signals] of [[[], ["SIGTERM", "SIGINT"]], [["--drain", "0.3"], ["SIGTERM"]]]) {
    const server = await serve("--context", "60000", ...options);
    const { answer } = await begin(server, 50000);
    const start = Date.now();
    for (const signal of signals) server.signal(signal);
    assert.equal(await server.exited, 0);
    assert.ok(Date.now() - start < 60_000, "it finished the answer");
    assert.ok(!(await answer).includes("[DONE]"));
  }
});
