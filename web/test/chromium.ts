import assert from "node:assert/strict";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type Page, chromium } from "playwright-core";

import { serve } from "../tools/serve.js";
import { type CaseReport, caseNames } from "./check_case.js";

// Runs every case in Debian's Chromium, on its software driver, and the page, of which it makes pictures:
//   node dist/test/chromium.js CASES PICTURE

const [cases = "", picture = "web-page.png"] = process.argv.slice(2);
const programs = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => [`/usr/bin/${name}`, `/usr/local/bin/${name}`]);
const executablePath = process.env["JERBOA_CHROMIUM"] ?? programs.find((path) => existsSync(path));
assert.ok(executablePath !== undefined, "there is no Chromium: ./dev setup installs it, or set JERBOA_CHROMIUM");

async function runCase(page: Page, name: string): Promise<void> {
  const report: CaseReport = await page.evaluate(async (folder) => {
    const { checkCase } = (await import(`${location.origin}/dist/test/check_case.js`)) as typeof import("./check_case.js");
    return checkCase(undefined, async (file) => {
      const response = await fetch(`/programs/${folder}/${file}`);
      if (!response.ok) throw new Error(`${folder}/${file} is not there`);
      return new Uint8Array(await response.arrayBuffer());
    });
  }, name);
  console.log(`${name}: ${report.runs} runs in ${Math.round(report.milliseconds)} ms; from native WebGPU ${report.fromWebgpu.toExponential(1)}, from the CPU ${report.fromCpu.toExponential(1)}`);
  assert.ok(report.fromWebgpu <= 2e-3 && report.fromCpu <= 2e-3, `${name} differs from the native results`);
}

// Compiling shaders is most of this test's time: all that one page opens is the same device.
function shareDevice(): void {
  const request = GPUAdapter.prototype.requestDevice;
  let device: Promise<GPUDevice> | undefined;
  GPUAdapter.prototype.requestDevice = function (...given) {
    device ??= request.apply(this, given).then((made) => {
      const destroy = made.destroy.bind(made);
      made.destroy = () => undefined;
      Object.assign(globalThis, {
        loseDevice: () => {
          device = undefined;
          destroy();
        },
      });
      return made;
    });
    return device;
  };
}

// A model that the page defines itself, compiled in a worker.
async function trainFromTypeScript(page: Page): Promise<void> {
  const workers = page.workers().length; // the page's own compiler
  const losses = await page.evaluate(async () => {
    const graph = (await import(`${location.origin}/dist/src/graph/index.js`)) as typeof import("../src/graph/index.js");
    const { tensor } = (await import(`${location.origin}/dist/src/index.js`)) as typeof import("../src/index.js");
    const model = { up: new graph.nn.Linear(4, 16), down: new graph.nn.Linear(16, 1) };
    const trainer = await graph.Trainer.create(
      model,
      (m, { x, y }: { x: import("../src/graph/index.js").Tensor; y: import("../src/graph/index.js").Tensor }) =>
        graph.mean(graph.square(m.down.call(graph.tanh(m.up.call(x))).sub(y))),
      { optimizer: graph.sgd({ lr: 0.1 }) },
    );
    const x = tensor(Float32Array.from({ length: 32 }, (_, i) => Math.sin(i)), [8, 4]);
    const y = tensor(Float32Array.from({ length: 8 }, (_, i) => Math.cos(i)), [8, 1]);
    const seen: number[] = [];
    for (let i = 0; i < 10; ++i) seen.push(await (await trainer.step({ x, y })).loss());
    trainer.destroy();
    return seen;
  });
  console.log(`a model of the page: loss ${losses[0]!.toFixed(3)} to ${losses.at(-1)!.toFixed(3)}`);
  assert.ok(losses.at(-1)! < 0.9 * losses[0]!, losses.join(" "));
  // Playwright hears of the end of a worker a little later.
  for (let i = 0; i < 50 && page.workers().length > workers; ++i) await page.waitForTimeout(100);
  assert.equal(page.workers().length, workers, "the compiler's worker outlives its trainer");
}

const isFull = process.env["JERBOA_SOAK_SECONDS"] !== undefined;
const text = (page: Page, id: string) => page.textContent(`#${id}`).then((found) => found ?? "");
const isReady = (page: Page) => page.waitForFunction(() => !(document.getElementById("train") as HTMLButtonElement).disabled, undefined, { timeout: 120_000 });

// The graphs are compiled for this device, it writes from the first step on, and the training is kept.
async function trainOnPage(page: Page): Promise<void> {
  await isReady(page);
  assert.match(await text(page, "status"), /^A character GPT · \d+ kernels compiled for this device$/);
  assert.match(await text(page, "adapter"), / · software$/);
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 60, undefined, { timeout: 120_000 });
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Train", undefined, { timeout: 60_000 });
  const loss = Number(await text(page, "loss"));
  console.log(`the page: loss ${loss} at step ${await text(page, "step")}`);
  assert.ok(loss > 0 && loss < 4.5, `a loss of ${loss}`);
  assert.match(await text(page, "schedule"), /schedule of 60 steps is over/);
  assert.equal(await text(page, "rate"), "2.0·10⁻⁴"); // not 0
  assert.match(await text(page, "saved"), /^Kept in this browser/);
  const steps = await page.$$eval("#samples [data-step]", (rows) => rows.map((row) => Number((row as HTMLElement).dataset["step"])));
  assert.deepEqual(steps.slice(-2), [1, 0], "samples of the first steps");
  assert.equal(await page.locator("#curve .mark").count(), steps.length);
  assert.equal(await page.locator("#next li").count(), 8);
  assert.equal(await page.locator("#heads .head").count(), 2 * 4);
  assert.ok(await page.isHidden("#problem"));
}

// Of a reload, or of a device that is lost, nothing but the steps since the last autosave is lost.
async function continueAfterReload(page: Page): Promise<void> {
  const [step, samples] = [await text(page, "step"), await page.locator("#samples li").count()];
  await page.reload();
  await isReady(page);
  assert.equal(await text(page, "step"), step);
  assert.equal(await page.locator("#samples li").count(), samples);
  await page.click("#train");
  await page.waitForFunction((before) => Number(document.getElementById("step")!.textContent) > before, Number(step), { timeout: 60_000 });
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Train", undefined, { timeout: 60_000 });
  assert.ok(Number(await text(page, "loss")) < 4.5);
  if (!isFull) return;
  const kept = await text(page, "step");
  await page.evaluate(() => (globalThis as unknown as { loseDevice(): void }).loseDevice());
  await page.waitForFunction((saved) => document.getElementById("status")!.textContent!.includes(`goes on from step ${saved}`), kept, { timeout: 120_000 });
  assert.equal(await text(page, "step"), kept);
}

// What is refused leaves the run before as it was; what is accepted replaces it, though it is running.
async function openOthers(page: Page): Promise<void> {
  const status = await text(page, "status");
  const [before] = status.split(" ·");
  await page.setInputFiles("#files", { name: "broken.jerboa", mimeType: "", buffer: Buffer.from("no program") });
  await page.waitForSelector("#problem:not([hidden])");
  assert.match(await text(page, "problem"), /^Not a Jerboa program file/);
  assert.ok((await text(page, "status")).startsWith(before!));
  await page.setInputFiles("#files", { name: "picture.png", mimeType: "", buffer: Buffer.from([137, 80, 0, 0]) });
  await page.waitForFunction(() => document.getElementById("problem")!.textContent!.startsWith("Picture.png is not a text"));
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Pause");
  await page.setInputFiles("#files", { name: "rain.txt", mimeType: "text/plain", buffer: Buffer.from("Rain falls on the roof. ".repeat(20)) });
  await page.waitForFunction(() => document.getElementById("text-name")!.textContent === "rain.txt");
  await page.waitForTimeout(300); // for the steps of the old one
  assert.equal(await text(page, "step"), "0");
  assert.equal(await text(page, "train"), "Train");
  assert.ok(await page.isHidden("#problem"));
  if (!isFull) return;
  await page.setInputFiles("#files", [`${cases}/gpt.jerboa`, `${cases}/text.txt`]);
  await page.waitForFunction(() => document.getElementById("status")!.textContent!.startsWith("gpt.jerboa"), undefined, { timeout: 60_000 });
}

async function showGraph(page: Page): Promise<void> {
  await page.goto(`${address}/page/graph.html`);
  await page.waitForSelector("#work:not([hidden])", { timeout: 60_000 });
  assert.match(await text(page, "summary"), /^\d+ ops become \d+ kernels, one submit$/);
  assert.ok((await page.locator("#graph .node").count()) > 50);
  await page.click("#profile");
  await page.waitForFunction(() => / (ms|µs) by the /.test(document.getElementById("summary")!.textContent!), undefined, { timeout: 120_000 });
  await page.click("#kernels .kernel:has-text('matmul')");
  assert.match(await text(page, "wgsl"), /@compute @workgroup_size/);
  assert.ok((await page.locator("#graph .in-kernel").count()) >= 1);
  assert.ok(await page.isHidden("#problem"));
}

// A model from the server answers, is stopped and asked again; the conversation is kept.
async function chat(page: Page): Promise<void> {
  await page.goto(`${address}/page/chat.html`);
  await photograph(page, "chat-empty");
  await page.click("#offered .choice");
  await page.waitForSelector("#send:enabled", { timeout: 120_000 });
  assert.ok(await page.isHidden("#loader"));
  assert.equal(await text(page, "choose-model"), "tiny");
  await page.click("#open-settings");
  await page.fill("#max_tokens", "12");
  await page.fill("#temperature", "0");
  await page.click("#settings .primary");
  await page.fill("#text", "Name three *rivers*.");
  await page.press("#text", "Enter");
  const isCut = () => /^12 tokens, [\d.]+ tokens\/s, cut by the limit$/.test(document.querySelector(".assistant .speed")?.textContent ?? "");
  await page.waitForFunction(isCut, undefined, { timeout: 120_000 });
  const first = await page.textContent(".assistant .body");
  await page.click("text=Regenerate");
  await page.waitForFunction(isCut, undefined, { timeout: 60_000 });
  assert.equal(await page.textContent(".assistant .body"), first);
  await page.click("#open-settings");
  await page.fill("#max_tokens", "3000"); // so that there is time to stop it
  await page.click("#settings .primary");
  await page.fill("#text", "More");
  await page.press("#text", "Enter");
  await page.waitForFunction(() => (document.querySelectorAll(".assistant .body")[1]?.textContent ?? "").length > 3, undefined, { timeout: 60_000 });
  await page.click("#stop");
  await page.waitForSelector("#send:not([hidden])");
  assert.ok(await page.isHidden("#problem"), await text(page, "problem"));
  await photograph(page, "chat");
  await page.reload();
  assert.equal(await page.locator(".message").count(), 4);
}

// In light, dark and on a phone.
async function photograph(page: Page, name: string): Promise<void> {
  const path = (kind: string) => picture.replace(/\.png$/, `-${name}${kind}.png`);
  await page.screenshot({ path: path(""), fullPage: true });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.screenshot({ path: path("-dark"), fullPage: true });
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(200);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `the page ${name} is wider than a phone`);
  await page.screenshot({ path: path("-phone"), fullPage: true });
  await page.setViewportSize({ width: 1180, height: 860 });
}

// The server's tests have a tiny model of bytes.
const { makeModel } = (await import(new URL("../../../tests/server/live.js", import.meta.url).href)) as { makeModel(): string };
const models = mkdtempSync(join(tmpdir(), "jerboa-models-"));
renameSync(makeModel(), join(models, "tiny"));

const { server, address } = await serve({ programs: cases, models });
const browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox", "--enable-unsafe-webgpu"] });
try {
  const context = await browser.newContext({ viewport: { width: 1180, height: 860 } });
  const page = await context.newPage();
  const outside: string[] = [];
  page.on("pageerror", (error) => outside.push(error.message));
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) outside.push(request.url());
  });
  await page.addInitScript(shareDevice);
  await page.goto(address);
  await trainOnPage(page);
  await photograph(page, "train");
  await continueAfterReload(page);
  for (const name of caseNames) await runCase(page, name);
  await trainFromTypeScript(page);
  await openOthers(page);
  await showGraph(page);
  await photograph(page, "graph");
  await chat(page);
  assert.deepEqual(outside, [], "requests to elsewhere, or errors");

  const bare = await context.newPage();
  await bare.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await bare.goto(`${address}/page/index.html`);
  await bare.waitForSelector("#problem:not([hidden])");
  assert.match(await text(bare, "problem"), /This browser has no WebGPU.*Chrome/s);
  await bare.screenshot({ path: picture.replace(/\.png$/, "-without.png") });
} finally {
  await browser.close();
  server.close();
  rmSync(models, { recursive: true });
}
