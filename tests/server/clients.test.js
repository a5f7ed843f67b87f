// Popular clients against a live server.
import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { after, before, test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { generateObject, generateText, streamText, tool as aiTool } from "ai";
import OpenAI from "openai";
import { z } from "zod";

import { makeEncoder, serve } from "./live.js";

let encoder, server, openai, ai, langchain;
before(async () => {
  encoder = makeEncoder();
  server = await serve(`encoder=${encoder}`, "--api-key", "secret", "--max-tokens", "400");
  const baseURL = `${server.address}/v1`;
  openai = new OpenAI({ baseURL, apiKey: "secret", maxRetries: 0 });
  ai = createOpenAICompatible({ name: "jerboa", baseURL, apiKey: "secret", includeUsage: true, supportsStructuredOutputs: true })("tiny");
  langchain = (maxTokens) => new ChatOpenAI({ model: "tiny", apiKey: "secret", temperature: 0, maxTokens, maxRetries: 0, configuration: { baseURL } });
});
after(async () => {
  assert.equal(await server?.stop(), 0);
  rmSync(encoder, { recursive: true });
});

const messages = [{ role: "user", content: "Hello" }];
const greedy = { model: "tiny", messages, max_tokens: 12, temperature: 0 };
const addition = {
  type: "function",
  function: {
    name: "add",
    description: "Adds two digits",
    parameters: {
      type: "object",
      properties: { a: { type: "integer", minimum: 0, maximum: 9 }, b: { type: "integer", minimum: 0, maximum: 9 } },
      required: ["a", "b"],
      additionalProperties: false,
    },
  },
};
const digits = z.object({ a: z.number().int().min(0).max(9), b: z.number().int().min(0).max(9) });
const isDigits = (value) => Number.isInteger(value.a) && Number.isInteger(value.b);

test("openai: whole answers and streams are the same", async () => {
  const whole = await openai.chat.completions.create(greedy);
  assert.equal(whole.choices[0].finish_reason, "length");
  assert.equal(whole.usage.completion_tokens, 12);
  const stream = await openai.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } });
  let text = "", usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.deepEqual({ ...usage, prompt_tokens_details: 0 }, { ...whole.usage, prompt_tokens_details: 0 });
});

test("openai: the streaming helper collects tool calls", async () => {
  const stream = openai.chat.completions.stream({
    ...greedy, temperature: 1, max_tokens: 100, tools: [addition], tool_choice: { type: "function", function: { name: "add" } },
  });
  const { choices } = await stream.finalChatCompletion();
  assert.equal(choices[0].finish_reason, "tool_calls");
  assert.equal(choices[0].message.tool_calls[0].function.name, "add");
  assert.ok(isDigits(JSON.parse(choices[0].message.tool_calls[0].function.arguments)));
});

test("openai: a tool's result goes back", async () => {
  const first = await openai.chat.completions.create({ ...greedy, temperature: 1, max_tokens: 100, tools: [addition], tool_choice: "required" });
  const { message } = first.choices[0];
  const second = await openai.chat.completions.create({
    ...greedy, tools: [addition], messages: [...messages, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "7" }],
  });
  assert.ok(second.usage.completion_tokens > 0);
});

test("openai: a schema", async () => {
  const schema = { type: "object", properties: { kind: { enum: ["cat", "dog"] } }, required: ["kind"], additionalProperties: false };
  const answer = await openai.chat.completions.parse({
    ...greedy, max_tokens: 60, response_format: { type: "json_schema", json_schema: { name: "animal", strict: true, schema } },
  });
  assert.ok(["cat", "dog"].includes(JSON.parse(answer.choices[0].message.content).kind));
});

test("openai: several answers, log-probabilities, stop and seed", async () => {
  const request = { ...greedy, temperature: 1, n: 2, seed: 3, logprobs: true, top_logprobs: 2 };
  const [first, second] = [await openai.chat.completions.create(request), await openai.chat.completions.create(request)];
  assert.deepEqual(first.choices, second.choices);
  assert.equal(first.choices[1].logprobs.content[0].top_logprobs.length, 2);
  const { text } = (await openai.completions.create({ model: "tiny", prompt: "Once", temperature: 0, max_tokens: 12 })).choices[0];
  const letters = [...text];
  const stop = letters[letters.length - 1];
  const stopped = await openai.completions.create({ model: "tiny", prompt: "Once", temperature: 0, max_tokens: 12, stop });
  assert.equal(stopped.choices[0].text, text.slice(0, text.indexOf(stop)));
  assert.equal(stopped.choices[0].finish_reason, "stop");
});

test("openai: completions in streams", async () => {
  const request = { model: "tiny", prompt: ["Once", "Twice"], temperature: 0, max_tokens: 8 };
  const whole = await openai.completions.create(request);
  const texts = ["", ""];
  for await (const chunk of await openai.completions.create({ ...request, stream: true }))
    texts[chunk.choices[0].index] += chunk.choices[0].text;
  assert.deepEqual(texts, whole.choices.map((choice) => choice.text));
});

test("openai: responses", async () => {
  const request = { model: "tiny", input: "Hello", temperature: 0, max_output_tokens: 12 };
  const whole = await openai.responses.create(request);
  assert.equal(whole.output_text, (await openai.chat.completions.create(greedy)).choices[0].message.content);
  let text = "", last;
  for await (const event of await openai.responses.create({ ...request, stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.equal(last.type, "response.incomplete");
  const called = await openai.responses.create({
    ...request, max_output_tokens: 100, tools: [{ type: "function", ...addition.function, strict: true }], tool_choice: "required",
  });
  assert.equal(called.output[0].type, "function_call");
  assert.ok(isDigits(JSON.parse(called.output[0].arguments)));
});

test("openai: embeddings, as numbers and in base64", async () => {
  const request = { model: "encoder", input: ["w5 w6", "w7"] };
  const packed = await openai.embeddings.create(request); // the client asks for base64
  const plain = await openai.embeddings.create({ ...request, encoding_format: "float" });
  assert.equal(plain.data.length, 2);
  plain.data.forEach(({ embedding }, i) => embedding.forEach((value, at) => assert.equal(Math.fround(value), Math.fround(packed.data[i].embedding[at]))));
  await assert.rejects(openai.chat.completions.create({ ...greedy, model: "encoder" }), /does not generate text/);
});

test("openai: errors have their classes", async () => {
  await assert.rejects(openai.chat.completions.create({ ...greedy, model: "none" }), OpenAI.NotFoundError);
  await assert.rejects(openai.chat.completions.create({ ...greedy, temperature: -1 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "temperature");
  const stranger = new OpenAI({ baseURL: `${server.address}/v1`, apiKey: "wrong", maxRetries: 0 });
  await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  const names = [];
  for await (const model of openai.models.list()) names.push(model.id);
  assert.deepEqual(names, ["tiny", "encoder"]);
});

test("openai: an aborted stream frees its slot", async () => {
  const stream = await openai.chat.completions.create({ ...greedy, max_tokens: 400, stream: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  const unfinished = async () => {
    const answer = await fetch(`${server.address}/v1/metrics`, { headers: { Authorization: "Bearer secret" } });
    return (await answer.json()).models[0].requests_unfinished;
  };
  for (let i = 0; i < 1000 && (await unfinished()) > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(await unfinished(), 0);
});

test("AI SDK: text, streams, tools and objects", async () => {
  const options = { model: ai, messages, maxOutputTokens: 12, temperature: 0, maxRetries: 0 };
  const whole = await generateText(options);
  assert.equal(whole.finishReason, "length");
  const streamed = streamText(options);
  let text = "";
  for await (const piece of streamed.textStream) text += piece;
  assert.equal(text, whole.text);
  assert.equal((await streamed.usage).outputTokens, 12);
  const add = aiTool({ description: "Adds two digits", inputSchema: digits, execute: async ({ a, b }) => a + b });
  const forced = { ...options, maxOutputTokens: 100, tools: { add }, toolChoice: "required" };
  const called = await generateText(forced);
  assert.equal(called.toolResults[0].output, called.toolCalls[0].input.a + called.toolCalls[0].input.b);
  const streamedCall = streamText(forced);
  for await (const piece of streamedCall.fullStream) assert.notEqual(piece.type, "error", JSON.stringify(piece));
  assert.ok(isDigits((await streamedCall.toolCalls)[0].input));
  const { object } = await generateObject({ ...options, maxOutputTokens: 100, schema: digits });
  assert.ok(isDigits(object));
});

test("LangChain: text, streams and tools", async () => {
  const whole = await langchain(12).invoke([new HumanMessage("Hello")]);
  let text = "";
  for await (const chunk of await langchain(12).stream([new HumanMessage("Hello")])) text += chunk.content;
  assert.equal(text, whole.content);
  const add = langchainTool(async ({ a, b }) => String(a + b), { name: "add", description: "Adds two digits", schema: digits });
  const bound = langchain(100).bindTools([add], { tool_choice: "add" });
  const called = await bound.invoke([new HumanMessage("Hello")]);
  assert.equal(called.tool_calls[0].name, "add");
  assert.ok(isDigits(called.tool_calls[0].args));
  let collected;
  for await (const chunk of await bound.stream([new HumanMessage("Hello")])) collected = collected ? collected.concat(chunk) : chunk;
  assert.deepEqual(collected.tool_calls[0].args, called.tool_calls[0].args);
});
