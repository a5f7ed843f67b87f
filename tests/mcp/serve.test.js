// `jerboa serve --mcp`: the server calls tools for requests that ask for that.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { serve } from "../server/live.js";
import { config, everything, folder } from "./live.js";

const stdio = { everything: { command: "node", args: [everything, "stdio"] } };
const messages = [{ role: "user", content: "How is the weather?" }];
const asked = { messages, max_tokens: 100, temperature: 0, server_tools: true };

let server;
before(async () => {
  server = await serve("--mcp", config(stdio), "--max-calls", "1", "--context", "16384");
});
after(async () => assert.equal(await server?.stop(), 0));

const post = (route, body) => fetch(`${server.address}${route}`, { method: "POST", body: JSON.stringify(body) });
const named = { type: "function", function: { name: "get-structured-content" } };
const isWeather = (text) => assert.ok(JSON.parse(text).temperature);

test("a chat's model calls a tool of the server, reads the result and answers", async () => {
  const { choices, usage } = await (await post("/v1/chat/completions", { ...asked, tool_choice: named })).json();
  const { message, finish_reason } = choices[0];
  const [call] = message.server_tool_calls;
  assert.equal(call.name, "get-structured-content");
  assert.match(JSON.parse(call.arguments).location, /^(New York|Chicago|Los Angeles)$/);
  isWeather(call.output);
  assert.equal(call.error, null);
  assert.equal(message.tool_calls, undefined); // those are the client's
  assert.equal(finish_reason, "length");
  assert.ok(message.content.length > 0);
  assert.equal(usage.completion_tokens, 100); // the call and the answer together
});

test("an answer whose tokens went into the call ends after it", async () => {
  const free = { type: "function", function: { name: "echo" } }; // whose text goes on for ever
  const { choices, usage } = await (await post("/v1/chat/completions", { ...asked, max_tokens: 60, tool_choice: free })).json();
  assert.equal(choices[0].message.server_tool_calls.length, 1);
  assert.equal(choices[0].message.content, "");
  assert.equal(choices[0].finish_reason, "length");
  assert.equal(usage.completion_tokens, 60);
});

test("streams report calls as they are made", async () => {
  const text = await (await post("/v1/chat/completions", { ...asked, tool_choice: named, stream: true })).text();
  const deltas = text.split("\n\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)).choices[0].delta);
  const at = deltas.findIndex((delta) => delta.server_tool_calls);
  isWeather(deltas[at].server_tool_calls[0].output);
  assert.ok(deltas.slice(at).some((delta) => delta.content));
  assert.ok(!deltas.some((delta) => delta.tool_calls));
  assert.ok(text.endsWith("data: [DONE]\n\n"));
});

test("responses have an item for each call", async () => {
  const body = { input: "How is the weather?", max_output_tokens: 100, temperature: 0, server_tools: true, tool_choice: { type: "function", name: "get-structured-content" } };
  const { output } = await (await post("/v1/responses", body)).json();
  assert.deepEqual(output.map(({ type }) => type), ["mcp_call", "message"]);
  isWeather(output[0].output);
  const types = (await (await post("/v1/responses", { ...body, stream: true })).text()).match(/(?<=^event: ).*$/gm);
  assert.equal(types.filter((type) => type === "response.output_item.done").length, 2);
  assert.equal(types.at(-1), "response.incomplete");
});

test("tools are used only where a request asks for them", async () => {
  const { server_tools: names } = await (await fetch(`${server.address}/v1/models`)).json();
  assert.ok(names.includes("get-sum"));
  const { usage } = await (await post("/v1/chat/completions", { messages, max_tokens: 4 })).json();
  assert.ok(usage.prompt_tokens < 100); // nothing about tools
  const refused = async (more, expected) => {
    const reply = await post("/v1/chat/completions", { ...asked, ...more });
    assert.equal(reply.status, 400);
    assert.match((await reply.json()).error.message, expected);
  };
  await refused({ tools: [] }, /server_tools cannot be combined with tools/);
  await refused({ n: 2 }, /n must be 1 with server_tools/);
  await refused({ tool_choice: { type: "function", function: { name: "nothing" } } }, /not among the tools/);
});

test("a tool server that has ended is restarted", async (t) => {
  const path = join(folder, "serve-mortal.mjs");
  // It ends after its first call.
  writeFileSync(path, `
    import readline from "node:readline";
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const { id, method } = JSON.parse(line);
      const results = {
        initialize: { protocolVersion: "2025-06-18", capabilities: {} },
        "tools/list": { tools: [{ name: "who", inputSchema: { type: "object", additionalProperties: false } }] },
        "tools/call": { content: [{ type: "text", text: String(process.pid) }] },
      };
      if (id === undefined) continue;
      process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result: results[method] }) + "\\n", () => method === "tools/call" && process.exit(3));
    }`);
  const mortal = await serve("--mcp", config({ mortal: { command: "node", args: [path] } }, "mortal.json"), "--max-calls", "1");
  t.after(() => mortal.stop());
  const said = [];
  for (let i = 0; i < 3; ++i) {
    const reply = await fetch(`${mortal.address}/v1/chat/completions`, { method: "POST", body: JSON.stringify({ ...asked, tool_choice: "required" }) });
    const [call] = (await reply.json()).choices[0].message.server_tool_calls;
    assert.equal(call.error, null);
    said.push(call.output);
    // Its sockets are open until the last of its threads has ended, which may be after the first is a zombie.
    const isAlive = () => {
      try {
        const process = `/proc/${call.output}`;
        return readdirSync(`${process}/task`).length > 1 || readFileSync(`${process}/stat`, "utf8").split(" ")[2] !== "Z";
      } catch {
        return false;
      }
    };
    for (let k = 0; k < 500 && isAlive(); ++k) await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.equal(new Set(said).size, 3);
});

test("a call that takes too long ends with its request, and a call of a disconnected client is cancelled", async (t) => {
  const notes = join(folder, "serve-notes.txt"), path = join(folder, "serve-waiting.mjs");
  // It does not answer calls, and notes what it hears.
  writeFileSync(path, `
    import { appendFileSync } from "node:fs";
    import readline from "node:readline";
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const { id, method } = JSON.parse(line);
      appendFileSync(${JSON.stringify(notes)}, method + "\\n");
      const result = method === "initialize" ? { protocolVersion: "2025-06-18", capabilities: {} } : { tools: [{ name: "wait", inputSchema: { type: "object", additionalProperties: false } }] };
      if (id !== undefined && method !== "tools/call") console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
    }`);
  const heard = (method) => readFileSync(notes, "utf8").split("\n").filter((line) => line === method).length;
  const until = async (condition) => {
    for (let i = 0; i < 1000 && !(await condition()); ++i) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(await condition());
  };
  const waiting = config({ waiting: { command: "node", args: [path] } }, "waiting.json");
  const body = JSON.stringify({ ...asked, tool_choice: "required" });
  const ask = (server, signal) => fetch(`${server.address}/v1/chat/completions`, { method: "POST", body, signal });

  const impatient = await serve("--mcp", waiting, "--timeout", "10");
  t.after(() => impatient.stop());
  assert.equal((await ask(impatient)).status, 504);
  await until(() => heard("notifications/cancelled") === 1);
  assert.equal(await impatient.stop(), 0);

  const patient = await serve("--mcp", waiting);
  t.after(() => patient.stop());
  const stopFirst = new AbortController(), stopSecond = new AbortController();
  const first = ask(patient, stopFirst.signal);
  await until(() => heard("tools/call") === 2);
  const generated = async () => Number((await (await fetch(`${patient.address}/metrics`)).text()).match(/generated_tokens_total{.*} (\d+)/)[1]);
  const ofOne = await generated();
  const second = ask(patient, stopSecond.signal); // its call waits for the first, because a server answers one at a time
  second.catch(() => {});
  await until(async () => (await generated()) === 2 * ofOne);
  const gone = () => patient.log().split("the client went away").length - 1;
  stopSecond.abort();
  await assert.rejects(second, { name: "AbortError" });
  await until(() => gone() === 1);
  stopFirst.abort();
  await assert.rejects(first, { name: "AbortError" });
  await until(() => heard("notifications/cancelled") === 2);
  await until(() => gone() === 2);
  assert.equal(await patient.stop(), 0);
  assert.equal(heard("tools/call"), 2); // the second's was never made
});
