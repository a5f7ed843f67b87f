// Many streams at once, some of which are dropped: every text equals the one generated alone, and memory stays flat.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import { test } from "node:test";

import { serve } from "./live.js";

const seconds = Number(process.env.JERBOA_SOAK_SECONDS ?? 6);
const streams = Number(process.env.JERBOA_SOAK_STREAMS ?? 48);
const prompts = 24;

const request = (number) => ({
  messages: [{ role: "user", content: `Question ${number}: ${"why ".repeat(number % 7)}` }],
  max_tokens: 4 + (number % 20),
  seed: number,
  temperature: 1,
  stream: true,
});

// The text of a stream, or undefined if it was dropped after some bytes.
function ask(address, agent, number, dropAfter = Infinity) {
  return new Promise((resolve, reject) => {
    const call = http.request(`${address}/v1/chat/completions`, { method: "POST", agent }, (answer) => {
      let text = "", size = 0;
      answer.setEncoding("utf8");
      answer.on("data", (data) => {
        text += data;
        size += data.length;
        if (size > dropAfter) {
          call.destroy();
          resolve(undefined);
        }
      });
      answer.on("end", () => {
        if (answer.statusCode === 429 || answer.statusCode === 503) return resolve(undefined);
        if (answer.statusCode !== 200 || !text.endsWith("data: [DONE]\n\n")) return reject(new Error(`${answer.statusCode}: ${text}`));
        resolve(text.split("\n\n").filter((line) => line.startsWith("data: {")).map((line) => JSON.parse(line.slice(6)).choices[0].delta.content ?? "").join(""));
      });
    });
    call.on("error", (error) => (call.destroyed && dropAfter < Infinity ? resolve(undefined) : reject(error)));
    call.end(JSON.stringify(request(number)));
  });
}

const residentKib = (pid) => Number(readFileSync(`/proc/${pid}/status`, "utf8").match(/VmRSS:\s+(\d+)/)[1]);

const median = (numbers) => numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)];

test(`${streams} streams for ${seconds} seconds`, { timeout: (seconds + 240) * 1000 }, async () => {
  const server = await serve("--quiet", "--deterministic", "--context", "256", "--queue", "1000", "--max-connections", "2000");
  const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
  const alone = [];
  for (let i = 0; i < prompts; ++i) alone.push(await ask(server.address, agent, i));
  const start = Date.now();
  let finished = 0, dropped = 0;
  const memory = []; // [seconds, KiB]
  const sample = () => {
    const at = (Date.now() - start) / 1000;
    if (at - (memory.at(-1)?.[0] ?? -1) > Math.min(0.2, seconds / 200)) memory.push([at, residentKib(server.pid)]);
  };
  const client = async () => {
    while (Date.now() - start < seconds * 1000) {
      const number = Math.floor(Math.random() * prompts);
      const text = await ask(server.address, agent, number, Math.random() < 0.25 ? Math.random() * 3000 : Infinity);
      sample();
      if (text === undefined) ++dropped;
      else {
        assert.equal(text, alone[number], `text ${number} differs from the same alone`);
        ++finished;
      }
    }
  };
  await Promise.all(Array.from({ length: streams }, client));
  // Warm-up allocates what is allocated once; after it, memory at the end is compared with the beginning.
  const between = (from, to) => {
    const samples = memory.filter(([at]) => at >= from * seconds && at < to * seconds).map(([, kib]) => kib);
    assert.ok(samples.length > 0, `no text ended between ${from * seconds} and ${to * seconds} s: JERBOA_SOAK_SECONDS is too short for this machine`);
    return median(samples);
  };
  const settled = between(0.4, 0.55), resident = between(0.85, 1);
  console.log(`${finished} texts finished, ${dropped} dropped; ${settled} KiB, then ${resident} KiB`);
  assert.ok(finished > 0 && dropped > 0);
  const slack = seconds < 60 ? 2048 : 0; // what is allocated once may come late in a short run
  assert.ok(resident <= settled * 1.02 + slack, `memory grew from ${settled} to ${resident} KiB`);
  const metrics = async () => (await (await fetch(`${server.address}/v1/metrics`)).json()).models[0];
  for (let i = 0; i < 100 && (await metrics()).requests_unfinished > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal((await metrics()).requests_unfinished, 0);
  assert.equal((await metrics()).cache_usage_ratio, 0);
  agent.destroy();
  assert.equal(await server.stop(), 0);
});
