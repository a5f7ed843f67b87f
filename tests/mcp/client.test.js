// jerboa as a client of the reference server, over both transports, and as an agent that calls its tools.
import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { makeModel } from "../server/live.js";
import { config, everything, folder, jerboa, serveEverything } from "./live.js";

const stdio = { everything: { command: "node", args: [everything, "stdio"], env: { GREETING: "hello" } } };
let server;
before(async () => (server = await serveEverything()));
after(() => server.stop());

const overBoth = (name, run) => {
  test(`stdio: ${name}`, () => run(config(stdio, "stdio.json")));
  test(`http: ${name}`, () => run(config({ everything: { type: "http", url: server.url } }, "http.json")));
};

overBoth("tools are listed and called", async (path) => {
  const listed = await jerboa(["tools", path, "--json"]);
  assert.equal(listed.code, 0, listed.err);
  const tools = listed.out.trim().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(tools.find((tool) => tool.name === "echo").parameters.required, ["message"]);
  const sum = await jerboa(["tools", path, "get-sum", '{"a": 2, "b": 40}']);
  assert.equal(sum.out, "The sum of 2 and 40 is 42.\n");
  const image = await jerboa(["tools", path, "get-tiny-image"]);
  assert.match(image.out, /^\[image: image\/png, \d+ bytes\]$/m);
});

overBoth("errors of a tool and of the protocol are told", async (path) => {
  const wrong = await jerboa(["tools", path, "echo", '{"mesage": "x"}']);
  assert.equal(wrong.code, 1);
  assert.match(wrong.err, /^jerboa: echo: .*Invalid arguments for tool echo.*\n$/);
  const unknown = await jerboa(["tools", path, "ech"]);
  assert.equal(unknown.code, 2);
  assert.equal(unknown.err, "jerboa tools: there is no tool ech; did you mean echo?\n");
});

overBoth("a call that takes too long is given up", async (path) => {
  const slow = await jerboa(["tools", path, "trigger-long-running-operation", '{"duration": 60, "steps": 1}', "--timeout", "5"]);
  assert.equal(slow.code, 1);
  assert.equal(slow.err, "jerboa: everything: no answer to tools/call within 5 seconds\n");
});

test("progress restarts the timeout of an answer", async () => {
  const steps = await jerboa(["tools", config(stdio), "trigger-long-running-operation", '{"duration": 6, "steps": 12}', "--timeout", "5"]);
  assert.equal(steps.code, 0, steps.err);
  assert.match(steps.out, /completed/);
});

// A server that says what it is told to: each line that it reads is matched with the answers, by method.
const scripted = (answers) => {
  const path = join(folder, `scripted-${Math.random()}.mjs`);
  writeFileSync(path, `
    import readline from "node:readline";
    const answers = { initialize: { result: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "scripted", version: "1" } } },
      "tools/list": { result: { tools: [{ name: "wait", inputSchema: { type: "object" } }] } }, ...${JSON.stringify(answers)} };
    const say = (message) => console.log(JSON.stringify({ jsonrpc: "2.0", ...message }));
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const { id, method } = JSON.parse(line);
      const answer = answers[method];
      if (answer?.exit !== undefined) { console.error(answer.words); process.exit(answer.exit); }
      if (answer?.noise) console.log(answer.noise);
      if (answer?.asks) say({ id: "mine", method: answer.asks });
      if (answer?.result || answer?.error) say({ id, result: answer.result, error: answer.error });
    }`);
  return config({ scripted: { command: "node", args: [path] } });
};

test("a misbehaving server is named, with its output", async () => {
  const ends = await jerboa(["tools", scripted({ initialize: { exit: 3, words: "no licence" } })]);
  assert.equal(ends.code, 1);
  assert.equal(ends.err, "jerboa: scripted: node ended with exit code 3: no licence\n");
  const old = await jerboa(["tools", scripted({ initialize: { result: { protocolVersion: "1999-01-01" } } })]);
  assert.equal(old.err, "jerboa: scripted: it speaks version '1999-01-01' of the protocol, which is not known\n");
  const refuses = await jerboa(["tools", scripted({ "tools/list": { error: { code: -32601, message: "no tools here" } } })]);
  assert.equal(refuses.err, "jerboa: scripted: tools/list failed: no tools here\n");
  const missing = await jerboa(["tools", config({ nothing: { command: "no-such-program" } })]);
  assert.equal(missing.err, "jerboa: nothing: cannot run no-such-program: No such file or directory\n");
});

test("noise and requests from the server do no harm, and tools get names that models can write", async () => {
  const tools = ["a b", "a_b"].map((name) => ({ name, inputSchema: { type: "object" } }));
  const path = scripted({ "tools/list": { result: { tools }, noise: "starting up …", asks: "roots/list" } });
  const listed = await jerboa(["tools", path]);
  assert.equal(listed.code, 0, listed.err);
  assert.equal(listed.out, "a_b  \nscripted_a_b  \n");
});

test("Ctrl-C cancels the call on the server, and exits with 130", async () => {
  const notes = join(folder, "notes.txt");
  const path = join(folder, "waiting.mjs");
  // It does not answer, and notes what it hears.
  writeFileSync(path, `
    import { appendFileSync } from "node:fs";
    import readline from "node:readline";
    for await (const line of readline.createInterface({ input: process.stdin })) {
      const { id, method } = JSON.parse(line);
      appendFileSync(${JSON.stringify(notes)}, method + "\\n");
      const result = method === "initialize" ? { protocolVersion: "2025-06-18", capabilities: {} } : { tools: [{ name: "wait", inputSchema: {} }] };
      if (id !== undefined && method !== "tools/call") console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
    }`);
  const result = await jerboa(["tools", config({ waiting: { command: "node", args: [path] } }), "wait"],
    { signal: "SIGINT", when: () => existsSync(notes) && readFileSync(notes, "utf8").includes("tools/call") });
  assert.equal(result.code, 130);
  assert.equal(result.err, "");
  assert.match(readFileSync(notes, "utf8"), /tools\/call\nnotifications\/cancelled\n$/);
});

test("a server gets the variables of its configuration, but no others of ours", async () => {
  const { out } = await jerboa(["tools", config(stdio), "get-env"], { env: { HF_TOKEN: "secret" } });
  const variables = JSON.parse(out);
  assert.equal(variables.GREETING, "hello");
  assert.equal(variables.HF_TOKEN, undefined);
  assert.ok(variables.PATH);
});

test("http: refusals are reported, headers are sent, and the session is ended", async () => {
  const seen = [];
  const refusing = http.createServer((request, response) => {
    seen.push([request.method, request.headers.authorization]);
    response.writeHead(401).end("who are you?");
  });
  await new Promise((resolve) => refusing.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${refusing.address().port}/mcp`;
  const result = await jerboa(["tools", config({ guarded: { url, headers: { Authorization: "Bearer abc" } } })]);
  refusing.close();
  assert.equal(result.err, `jerboa: guarded: ${url}: access was denied (401); the headers in the configuration may hold a token\n`);
  assert.deepEqual(seen, [["POST", "Bearer abc"]]);
  assert.match(server.log(), /Received session termination request/);
});

test("http: a call is repeated if its session had ended, and not if it reached the server", async (t) => {
  const heard = [];
  let forgetful = false; // of the session, when it is called next
  const lossy = http.createServer(async (request, response) => {
    let body = "";
    for await (const part of request) body += part;
    const { id, method } = body ? JSON.parse(body) : {};
    heard.push(method ?? request.method);
    const say = (message) => response.end(JSON.stringify({ jsonrpc: "2.0", ...message }));
    response.setHeader("Content-Type", "application/json");
    if (method === "initialize") {
      response.setHeader("Mcp-Session-Id", "one");
      return say({ id, result: { protocolVersion: "2025-06-18", capabilities: {} } });
    }
    if (method === "tools/list") return say({ id, result: { tools: [{ name: "pay", inputSchema: { type: "object" } }] } });
    if (method === "tools/call" && forgetful) {
      forgetful = false;
      return response.writeHead(404).end();
    }
    if (method === "tools/call") { // it asks something before it answers, and does not take the answer to that
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      return response.write(`data: ${JSON.stringify({ jsonrpc: "2.0", id: 7, method: "ping" })}\n\n`);
    }
    response.writeHead(method === "notifications/initialized" ? 202 : 404).end();
  });
  await new Promise((resolve) => lossy.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    lossy.closeAllConnections();
    lossy.close();
  });
  const path = config({ lossy: { url: `http://127.0.0.1:${lossy.address().port}/mcp` } }, "lossy.json");
  const calls = async () => {
    heard.length = 0;
    const { code, err } = await jerboa(["tools", path, "pay", "--timeout", "20"]);
    assert.equal(code, 1);
    assert.match(err, /the server answered with 404/);
    return heard.filter((method) => method === "tools/call").length;
  };
  assert.equal(await calls(), 1);
  forgetful = true;
  assert.equal(await calls(), 2);
});

test("a model calls a tool, reads the result and answers", async () => {
  const model = makeModel();
  const path = config(stdio);
  const result = await jerboa(["generate", model, "How is the weather?", "--mcp", path, "--tool-choice", "get-structured-content",
    "--max-calls", "1", "--max-tokens", "100", "--greedy", "--json", "--device", "cpu", "--threads", "1", "--context", "16384"]);
  assert.equal(result.code, 0, result.err);
  assert.match(result.err, /^→ get-structured-content \{"location": ?"(New York|Chicago|Los Angeles)"\}\n← \{"temperature".*\n/);
  const { messages, text } = JSON.parse(result.out);
  assert.deepEqual(messages.map(({ role }) => role), ["user", "assistant", "tool", "assistant"]);
  assert.equal(messages[1].tool_calls[0].function.name, "get-structured-content");
  assert.equal(messages[2].tool_call_id, messages[1].tool_calls[0].id);
  assert.ok(JSON.parse(messages[2].content).temperature);
  assert.equal(messages[3].content, text);
  const chat = await jerboa(["chat", model, "Hi", "--mcp", path, "--tool-choice", "get-structured-content",
    "--max-calls", "1", "--max-tokens", "100", "--greedy", "--device", "cpu", "--threads", "1", "--context", "16384"]);
  assert.equal(chat.code, 0, chat.err);
  assert.match(chat.err, /^→ get-structured-content .*\n← .*\n/);
});

test("a model that must call a tool chooses one, in formats that write the name outside of JSON", async () => {
  const tools = ["first", "second"].map((name) => ({ name, inputSchema: { type: "object", properties: { n: { type: "integer", minimum: 0, maximum: 9 } }, required: ["n"] } }));
  const path = scripted({ "tools/list": { result: { tools } }, "tools/call": { result: { content: [{ type: "text", text: "fine" }] } } });
  const model = makeModel();
  writeFileSync(join(model, "chat_template.jinja"), "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}{# tools <|channel|> #}assistant: ");
  const result = await jerboa(["generate", model, "Go", "--mcp", path, "--tool-choice", "required", "--max-calls", "1", "--max-tokens", "200", "--seed", "1", "--device", "cpu", "--threads", "1"]);
  assert.equal(result.code, 0, result.err);
  assert.match(result.err, /^→ (first|second) \{"n": ?\d\}\n← fine\n/);
});
