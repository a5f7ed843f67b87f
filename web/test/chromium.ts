import assert from "node:assert/strict";
import { existsSync } from "node:fs";

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
      made.destroy = () => undefined;
      return made;
    });
    return device;
  };
}

// A model that the page defines itself, compiled in a worker.
async function trainFromTypeScript(page: Page): Promise<void> {
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
  assert.equal(page.workers().length, 0, "the compiler's worker outlives its trainer");
}

async function trainOnPage(page: Page): Promise<void> {
  await page.waitForFunction(() => !(document.getElementById("train") as HTMLButtonElement).disabled, undefined, { timeout: 60_000 });
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 60, undefined, { timeout: 120_000 });
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Train", undefined, { timeout: 60_000 });
  const loss = Number(await page.textContent("#loss"));
  console.log(`the page: loss ${loss} at step ${await page.textContent("#step")}`);
  assert.ok(loss > 0 && loss < 4.5, `a loss of ${loss}`);
  await page.click("#write");
  await page.waitForFunction(() => document.getElementById("text")!.textContent!.length > 150, undefined, { timeout: 60_000 });
  assert.match((await page.textContent("#schedule")) ?? "", /schedule of 60 steps is over/);
  assert.ok(await page.isHidden("#problem"));
}

// A program that is refused leaves the one before as it was; one that is accepted replaces it, though it is running.
async function openOthers(page: Page): Promise<void> {
  const status = await page.textContent("#status");
  assert.match(status ?? "", /^A character GPT on /);
  await page.setInputFiles("#files", { name: "broken.jerboa", mimeType: "", buffer: Buffer.from("no program") });
  await page.waitForSelector("#problem:not([hidden])");
  assert.match((await page.textContent("#problem")) ?? "", /^Not a Jerboa program file/);
  assert.equal(await page.textContent("#status"), status);
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Pause");
  await page.setInputFiles("#files", [`${cases}/gpt.jerboa`, `${cases}/text.txt`]);
  await page.waitForFunction(() => document.getElementById("status")!.textContent!.startsWith("gpt.jerboa on "));
  await page.waitForTimeout(300); // for the steps of the old one
  assert.equal(await page.textContent("#step"), "0");
  assert.equal(await page.textContent("#train"), "Train");
  assert.ok(await page.isHidden("#problem"));
}

const { server, address } = await serve(cases);
const browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox", "--enable-unsafe-webgpu"] });
try {
  const context = await browser.newContext({ viewport: { width: 1100, height: 780 } });
  const page = await context.newPage();
  page.on("pageerror", (error) => console.error(`page: ${error.message}`));
  await page.addInitScript(shareDevice);
  await page.goto(`${address}/page/index.html`);
  await trainOnPage(page);
  for (const name of caseNames) await runCase(page, name);
  await trainFromTypeScript(page);
  await page.screenshot({ path: picture });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.waitForTimeout(200);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the page is wider than a phone");
  await page.screenshot({ path: picture.replace(/\.png$/, "-phone.png"), fullPage: true });
  await openOthers(page);

  const bare = await context.newPage();
  await bare.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await bare.goto(`${address}/page/index.html`);
  await bare.waitForSelector("#problem:not([hidden])");
  assert.match((await bare.textContent("#problem")) ?? "", /This browser has no WebGPU.*Chrome/s);
  await bare.screenshot({ path: picture.replace(/\.png$/, "-without.png") });
} finally {
  await browser.close();
  server.close();
}
