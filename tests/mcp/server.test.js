// `jerboa mcp` with the official client.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

import { makeEncoder, makeModel } from "../server/live.js";
import { folder, jerboa, program } from "./live.js";

const encoder = makeEncoder();
const memory = join(folder, "memory.sqlite");
let client, transport;

before(async () => {
  const note = join(folder, "note.txt");
  writeFileSync(note, "w1 w2 w3");
  const added = await jerboa(["memory", "add", note, "--memory", memory, "--model", encoder, "--device", "cpu", "--threads", "1"]);
  assert.equal(added.code, 0, added.err);
  transport = new StdioClientTransport({
    command: program,
    args: ["mcp", makeModel(), "--encoder", encoder, "--memory", memory, "--device", "cpu", "--threads", "1", "--greedy"],
  });
  client = new Client({ name: "test", version: "1" });
  await client.connect(transport);
});
after(() => client.close());

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const textOf = (result) => result.content[0].text;

test("the tools are described", async () => {
  assert.equal(client.getServerVersion().name, "jerboa");
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ["generate", "embed", "search_memory"]);
  for (const tool of tools) assert.equal(tool.inputSchema.type, "object");
  await client.ping();
});

test("generate answers and continues, with progress", async () => {
  const first = await call("generate", { prompt: "Hello", max_tokens: 8 });
  assert.ok(!first.isError);
  assert.equal(textOf(await call("generate", { prompt: "Hello", max_tokens: 8 })), textOf(first));
  let progress = 0;
  await call("generate", { prompt: "Hello", max_tokens: 400 }, { onprogress: () => ++progress });
  assert.ok(progress > 0);
  const continued = await call("generate", { prompt: "Hello", continue: true, max_tokens: 8 });
  assert.ok(!continued.isError);
  assert.notEqual(textOf(continued), textOf(first));
});

test("embed returns a vector for each text, and the memory is searched", async () => {
  const vectors = JSON.parse(textOf(await call("embed", { texts: ["w1 w2", "w3", "w1 w2"] })));
  assert.equal(vectors.length, 3);
  assert.deepEqual(vectors[0], vectors[2]);
  assert.match(textOf(await call("search_memory", { query: "w1 w2 w3", count: 1 })), /note\.txt, 1\.00\]\nw1 w2 w3$/);
});

test("mistakes are reported as results, or as errors of the protocol", async () => {
  const empty = await call("generate", { prompt: "" });
  assert.ok(empty.isError);
  assert.equal(textOf(empty), '"prompt" must be a string that is not empty');
  assert.equal(textOf(await call("generate", { prompt: "x", max_tokens: 0 })), '"max_tokens" must be a number from 1 to 16777216');
  assert.equal(textOf(await call("embed", { texts: [] })), '"texts" must be a list of 1 to 2048 texts');
  assert.equal(textOf(await call("search_memory", { query: "x", count: 99 })), '"count" must be a whole number from 1 to 20');
  await assert.rejects(call("no_such_tool", {}), /there is no tool 'no_such_tool'/);
  await assert.rejects(client.listPrompts(), /-32601|prompts/);
});

test("a cancelled call does not hold up the next one", async () => {
  const controller = new AbortController();
  const long = call("generate", { prompt: "Hello", max_tokens: 4000, continue: true }, { signal: controller.signal, onprogress: () => controller.abort() });
  await assert.rejects(long);
  const next = await call("generate", { prompt: "Hello", max_tokens: 2 });
  assert.ok(!next.isError);
});

test("it ends when its input does", async () => {
  const exited = new Promise((resolve) => transport._process.once("exit", (code) => resolve(code)));
  transport._process.stdin.end();
  assert.equal(await exited, 0);
});
