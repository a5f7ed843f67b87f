// The chat page in Debian's Chromium, with screenshots.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

import { serve } from "./live.js";

const programs = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => [`/usr/bin/${name}`, `/usr/local/bin/${name}`]);
const executablePath = process.env.JERBOA_CHROMIUM ?? programs.find((path) => existsSync(path));
assert.ok(executablePath, "there is no Chromium: ./dev setup installs it, or set JERBOA_CHROMIUM");
const picture = (name) => join(process.env.JERBOA_PICTURES ?? tmpdir(), `server-page-${name}.png`);

const written = `Rivers are **long**, *old* and \`wet\`. See [a list](https://example.org/rivers), but not [this](javascript:alert).

## Three of them

1. The Nile
   - in Africa
   - about 6,650 km
2. The Amazon
3. The Yangtze

| river | km |
|---|---|
| Nile | 6650 |
| Amazon | 6400 |

> It is raining.

\`\`\`cpp
int main() {
  std::cout << "<b>not bold</b>" << snake_case_name;  // a long line that needs to scroll on a phone, because it is long
}
\`\`\`

<img src=x onerror=alert(1)>`;

let server, browser;
before(async () => {
  server = await serve("--context", "60000");
  browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox"] });
});
after(async () => {
  await browser?.close();
  assert.equal(await server?.stop(), 0);
});

async function open(options, address = server.address) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 780 }, ...options });
  const page = await context.newPage();
  const outside = [];
  page.on("request", (request) => {
    if (!request.url().startsWith(address) && !request.url().startsWith("data:")) outside.push(request.url());
  });
  page.on("pageerror", (error) => outside.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") outside.push(message.text());
  });
  await page.goto(address);
  if (address === server.address) await page.waitForFunction(() => document.getElementById("model").value === "tiny");
  return { page, outside };
}

// Answers with a given text instead of the model's, and records the requests.
async function answerWith(page, text, reasoning = "") {
  const asked = [];
  await page.route("**/v1/chat/completions", (route) => {
    asked.push(route.request().postDataJSON());
    const chunk = (delta, more = {}) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }], ...more })}\n\n`;
    const pieces = [...text.matchAll(/[^]{1,7}/g)].map(([piece]) => chunk({ content: piece }));
    const usage = `data: ${JSON.stringify({ choices: [], usage: { completion_tokens: 120 } })}\n\n`;
    route.fulfill({ contentType: "text/event-stream", body: (reasoning ? chunk({ reasoning_content: reasoning }) : "") + pieces.join("") + usage + "data: [DONE]\n\n" });
  });
  return asked;
}

async function ask(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
  await page.waitForSelector("#send:not([hidden])");
}

test("it chats with the model, stops and regenerates", async () => {
  const { page, outside } = await open();
  await page.click("#open-settings");
  await page.fill("#max_tokens", "20");
  await page.fill("#temperature", "0");
  await page.click("#settings .primary");
  await ask(page, "Hello");
  await page.waitForFunction(() => /^20 tokens, [\d.]+ tokens\/s, cut by the limit$/.test(document.querySelector(".assistant .speed")?.textContent ?? ""));
  const first = await page.textContent(".assistant .body");
  await page.click("text=Regenerate");
  await page.waitForFunction(() => document.querySelectorAll(".assistant").length === 1 && /cut/.test(document.querySelector(".assistant .speed").textContent));
  assert.equal(await page.textContent(".assistant .body"), first);

  await page.click("#open-settings");
  await page.fill("#max_tokens", "50000"); // so that there is time to stop it
  await page.click("#settings .primary");
  await page.fill("#text", "More");
  await page.press("#text", "Enter");
  await page.waitForFunction(() => document.querySelectorAll(".assistant .body")[1]?.textContent.length > 3);
  await page.click("#stop");
  await page.waitForSelector("#send:not([hidden])");
  const unfinished = async () => (await (await fetch(`${server.address}/v1/metrics`)).json()).models[0].requests_unfinished;
  for (let i = 0; i < 1000 && (await unfinished()) > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(await unfinished(), 0);

  await page.reload();
  assert.equal(await page.locator(".message").count(), 4); // kept
  await page.click("#new");
  assert.equal(await page.locator(".message").count(), 0);
  await page.click("#conversations .title");
  assert.equal(await page.locator(".message").count(), 4);
  await page.click("#conversations .remove");
  assert.equal(await page.locator("#conversations li").count(), 0);
  assert.deepEqual(outside, []);
});

test("it shows Markdown, and a model's output never becomes markup", async () => {
  const { page, outside } = await open();
  const asked = await answerWith(page, written, "The user wants rivers.\nThree will do.");
  await page.click("#open-settings");
  await page.fill("#system", "Be brief.");
  await page.fill("#top_p", "0.9");
  await page.click("#settings .primary");
  await ask(page, "Tell me about rivers\nand show some code.");
  assert.deepEqual(asked[0].messages.map((message) => message.role), ["system", "user"]);
  assert.equal(asked[0].top_p, 0.9);
  assert.equal(asked[0].temperature, undefined);
  assert.equal(asked[0].server_tools, undefined); // there are none
  const count = (selector) => page.locator(`.assistant .body ${selector}`).count();
  for (const [selector, expected] of [["strong", 1], ["em", 1], ["h2", 1], ["ol > li", 3], ["ol ul li", 2], ["td", 4], ["blockquote", 1], [".code", 1], ["a", 1], ["img", 0], ["b", 0], ["p:first-child > span", 1]])
    assert.equal(await count(selector), expected, selector);
  assert.match(await page.textContent(".assistant .code pre"), /snake_case_name/);
  assert.match(await page.textContent(".assistant .body"), /<img src=x onerror=alert\(1\)>/);
  assert.equal(await page.textContent(".thoughts p"), "The user wants rivers.\nThree will do.");
  await page.screenshot({ path: picture("light") });
  await page.click("#theme");
  await page.screenshot({ path: picture("dark") });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(300);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than a phone");
  await page.screenshot({ path: picture("phone") });
  await page.click("#menu");
  await page.waitForTimeout(300);
  await page.screenshot({ path: picture("phone-menu") });
  await page.mouse.click(370, 400);
  await page.click("#open-settings");
  await page.screenshot({ path: picture("phone-settings") });
  assert.deepEqual(outside, []);
});

test("it asks for the server's key, and shows the server's load", async (t) => {
  const guarded = await serve("--api-key", "secret");
  t.after(() => guarded.stop());
  const { page } = await open({}, guarded.address);
  await page.waitForSelector("#problem:not([hidden])");
  assert.equal(await page.textContent("#problem"), "The server needs an API key: enter it in the settings.");
  assert.equal(await page.getAttribute("#key", "type"), "password");
  await page.click("#open-settings");
  await page.fill("#key", "secret");
  await page.fill("#max_tokens", "20");
  await page.click("#settings .primary");
  await page.waitForFunction(() => document.getElementById("model").value === "tiny");
  assert.ok(await page.isHidden("#problem"));
  for (const _ of [1, 2]) await ask(page, "Hello, hello, hello, hello, hello, hello, hello, hello");
  const live = /^0 in progress · batch 1\.0 · (\d+) % of prompts cached$/;
  await page.waitForFunction((text) => (new RegExp(text).exec(document.getElementById("live").textContent)?.[1] ?? 0) > 0, live.source);
  assert.equal(await guarded.stop(), 0);
});

test("it uses the server's tools, and shows their calls", async () => {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.route("**/v1/models", (route) => route.fulfill({ json: { object: "list", data: [{ id: "tiny" }], server_tools: ["add"] } }));
  let asked;
  await page.route("**/v1/chat/completions", (route) => {
    asked = route.request().postDataJSON();
    const chunk = (delta) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null }] })}\n\n`;
    const calls = [{ name: "add", arguments: '{"a": 1}', output: "7", error: null }];
    route.fulfill({ contentType: "text/event-stream", body: chunk({ server_tool_calls: calls }) + chunk({ content: "Seven." }) + "data: [DONE]\n\n" });
  });
  await page.goto(server.address);
  await page.waitForFunction(() => document.getElementById("model").value === "tiny");
  await ask(page, "Hello");
  assert.equal(asked.server_tools, true);
  assert.equal(await page.textContent(".assistant .body"), "Seven.");
  for (const expected of [undefined, true]) {
    await page.click("#open-settings");
    await page.click("#server_tools");
    await page.click("#settings .primary");
    await ask(page, "Hello again");
    assert.equal(asked.server_tools, expected);
  }
  assert.match(await page.textContent(".thoughts p"), /^→ add \{"a": 1\}\n← 7/);
});

test("it reports errors", async () => {
  const { page } = await open();
  await page.click("#open-settings");
  await page.fill("#max_tokens", "5000000000");
  await page.click("#settings .primary");
  await ask(page, "Hello");
  await page.waitForSelector("#problem:not([hidden])");
  assert.match(await page.textContent("#problem"), /max_tokens must be an integer/);
});
