import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type Page, chromium } from "playwright-core";

import { readSafetensors } from "../src/safetensors.js";
import { serve } from "../tools/serve.js";
import { type CaseReport, caseNames } from "./check_case.js";
import { chromiumPath } from "./chromium_path.js";

// Runs every case in Debian's Chromium, on its software driver, and the page, of which it makes pictures:
//   node dist/test/chromium.js CASES PICTURE

const [cases = "", picture = "web-page.png"] = process.argv.slice(2);

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

let checkpoint: Buffer;
const stepsOf = (bytes: Uint8Array) => readSafetensors(bytes).tensors.get("jerboa.state/step")!.data[0]!;

async function saveWhileTraining(page: Page): Promise<Buffer> {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
  const bytes = readFileSync(await download.path());
  assert.ok(stepsOf(bytes) >= 5);
  assert.equal(await text(page, "train"), "Pause", "training goes on");
  return bytes;
}

/** Drops files, or a text, on an element; gives whether the page takes them. */
function drop(page: Page, selector: string, given: { readonly files?: Readonly<Record<string, readonly number[]>>; readonly text?: string }): Promise<boolean> {
  return page.evaluate(
    ([on, { files = {}, text }]) => {
      const dataTransfer = new DataTransfer();
      for (const [name, bytes] of Object.entries(files)) dataTransfer.items.add(new File([Uint8Array.from(bytes)], name));
      if (text !== undefined) dataTransfer.setData("text/plain", text);
      const send = (type: string) => !document.querySelector(on)!.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
      const isTaken = send("dragover");
      if (document.body.classList.contains("dropping") !== isTaken) throw new Error("the page does not show what it takes");
      return send("drop") && isTaken;
    },
    [selector, given] as const,
  );
}

// What is dropped may be meant for something else: a training is not forgotten without a question.
async function dropTexts(page: Page): Promise<void> {
  const step = await text(page, "step");
  assert.notEqual(step, "0");
  assert.equal(await drop(page, "#prompt", { text: "a prompt" }), false, "a text that is dragged to a field is the field's");
  const questions: string[] = [];
  let isYes = false;
  page.on("dialog", (dialog) => {
    questions.push(dialog.message());
    void (isYes ? dialog.accept() : dialog.dismiss());
  });
  assert.ok(await drop(page, "body", { text: "Snow falls on the roof. ".repeat(20) }));
  assert.ok(await drop(page, "body", { files: { "snow.txt": [...Buffer.from("Snow falls. ".repeat(40))] } }));
  await page.waitForTimeout(100);
  assert.equal(await text(page, "step"), step);
  assert.deepEqual(questions, new Array(2).fill(`Forget the training of ${step} steps?`));
  isYes = true;
  await drop(page, "body", { files: { "snow.txt": [...Buffer.from("Snow falls. ".repeat(40))] } });
  await page.waitForFunction(() => document.getElementById("text-name")!.textContent === "snow.txt");
  assert.equal(await text(page, "step"), "0");
  page.removeAllListeners("dialog");
}

// A checkpoint that is opened while another training runs goes on from its own step.
async function openCheckpoint(page: Page): Promise<void> {
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 1, undefined, { timeout: 60_000 });
  await page.setInputFiles("#files", { name: "model.safetensors", mimeType: "", buffer: checkpoint });
  await page.waitForFunction((step) => document.getElementById("step")!.textContent === String(step), stepsOf(checkpoint), { timeout: 60_000 });
  assert.equal(await text(page, "train"), "Train");
  assert.equal(await text(page, "loss"), "–");
  assert.ok(await page.isHidden("#problem"), await text(page, "problem"));
}

// Trainings of several models do not replace each other.
async function keepSeveralRuns(page: Page): Promise<void> {
  const kept = await page.evaluate(async () => {
    const { saveRun, loadRun, forgetRun } = (await import(`${location.origin}/dist/page/autosave.js`)) as typeof import("../page/autosave.js");
    const names = ["one", "two", "three", "four", "five"];
    for (const [i, model] of names.entries())
      await saveRun({ model, textName: model, text: new Uint8Array(), losses: [i], samples: [], checkpoint: new Uint8Array(), savedAt: Date.now() + i });
    const found: (string | undefined)[] = [];
    for (const model of names) found.push((await loadRun(model))?.textName);
    for (const model of names) await forgetRun(model);
    return found;
  });
  assert.deepEqual(kept, [undefined, "two", "three", "four", "five"]);
}

// The graphs are compiled for this device, it writes from the first step on, and the training is kept.
async function trainOnPage(page: Page): Promise<void> {
  await isReady(page);
  assert.match(await text(page, "status"), /^A character GPT · \d+ kernels compiled for this device$/);
  assert.match(await text(page, "adapter"), / · software$/);
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 5, undefined, { timeout: 120_000 });
  checkpoint = await saveWhileTraining(page);
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
  await openCheckpoint(page);
  await dropTexts(page);
  await keepSeveralRuns(page);
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

// A file that is opened while another one is compiled is the one that is shown.
async function openGraphs(page: Page): Promise<void> {
  for (const given of ["null", "[]", "3", "{}"]) {
    await page.setInputFiles("#files", { name: `${given.length}.json`, mimeType: "", buffer: Buffer.from(given) });
    await page.waitForFunction((name) => document.getElementById("problem")!.textContent!.startsWith(name), `${given.length}.json`);
    assert.match(await text(page, "problem"), /is not a graph|has no graphs/);
  }
  const tensors = [{ name: "x", dtype: "f32", shape: [4], storage: "input" }, { name: "y", dtype: "f32", shape: [4] }];
  const nodes = [{ op: "tensor_input", inputs: [], outputs: [0] }, { op: "exp", inputs: [0], outputs: [1] }];
  const small = { version: 1, training: false, symbols: {}, tensors, nodes, outputs: { y: 1 }, captures: {}, updates: [], constants: [] };
  await page.setInputFiles("#files", `${cases}/graphs.json`);
  await page.setInputFiles("#files", { name: "small.json", mimeType: "", buffer: Buffer.from(JSON.stringify({ small })) });
  await page.waitForFunction(() => document.getElementById("entries")!.textContent === "small", undefined, { timeout: 60_000 });
  await page.waitForTimeout(2000); // for the larger one
  assert.equal(await text(page, "entries"), "small");
  assert.match(await text(page, "status"), /^Compiled for this device/);
  assert.ok(await page.isHidden("#problem"));
  // What cannot be opened does not keep what is being compiled from being shown.
  await page.setInputFiles("#files", `${cases}/graphs.json`);
  await page.setInputFiles("#files", { name: "empty.json", mimeType: "", buffer: Buffer.from("{}") });
  await page.waitForSelector("#problem:not([hidden])");
  await page.waitForFunction(() => document.getElementById("entries")!.textContent !== "small", undefined, { timeout: 60_000 });
  assert.match(await text(page, "status"), /^Compiled for this device/);
}

// A model from the server answers, is stopped and asked again; the conversation is kept.
async function chat(page: Page): Promise<void> {
  await page.goto(`${address}/page/chat.html`);
  await photograph(page, "chat-empty");
  await cancelLoading(page, "Choose a model");
  await page.click("#offered .choice");
  await page.waitForSelector("#send:enabled", { timeout: 120_000 });
  assert.ok(await page.isHidden("#loader"));
  assert.equal(await text(page, "choose-model"), "tiny");
  const posted = await page.evaluate(() => (globalThis as unknown as { posted: Posted[] }).posted);
  const parameters = posted.filter(({ name }) => name === "jerboa_language_parameter");
  assert.ok(parameters.length > 3 && parameters.every(({ isMoved }) => isMoved), "weights are copied to the worker");
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
  // In the page, so that it does not depend on how soon the test runs again.
  const stop = () => {
    const isWriting = (document.querySelectorAll(".assistant .body")[1]?.textContent ?? "").length > 3;
    if (isWriting) document.getElementById("stop")!.click();
    return isWriting;
  };
  await page.waitForFunction(stop, undefined, { timeout: 60_000 });
  await page.waitForSelector("#send:not([hidden])");
  assert.ok(await page.isHidden("#problem"), await text(page, "problem"));
  const speeds = await page.locator(".assistant .speed").allTextContents();
  assert.doesNotMatch(speeds[1] ?? "", /cut by the limit/);
  await photograph(page, "chat");
  await reloadFromCache(page);
  assert.equal(await page.locator(".message").count(), 4);
  await changeModels(page);
}

interface Posted {
  readonly name: string;
  readonly isMoved: boolean;
}

/** Which calls of the compiler are sent, and whether their bytes are gone afterwards. */
function watchWorkers(): void {
  const posted: Posted[] = [];
  const post = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message: unknown, ...given: unknown[]) {
    (post as (...all: unknown[]) => void).call(this, message, ...given);
    const { name, values = [] } = message as { name?: string; values?: unknown[] };
    if (name !== undefined) posted.push({ name, isMoved: values.some((value) => value instanceof Uint8Array && value.byteLength === 0) });
  };
  Object.assign(globalThis, { posted });
}

/** Cancels while a server does not answer; `shown` is what the page then has. */
async function cancelLoading(page: Page, shown: string): Promise<void> {
  await page.route("**/tokenizer*", () => undefined);
  await page.click("#offered .choice");
  await page.waitForFunction(() => document.getElementById("choose-model")!.textContent!.startsWith("Loading tiny"));
  await page.click("#cancel-load");
  await page.waitForFunction((wanted) => document.getElementById("choose-model")!.textContent === wanted, shown, { timeout: 10_000 });
  assert.equal(await page.getAttribute("#loader", "data-state"), "choosing");
  assert.ok(await page.isHidden("#loader-problem"));
  await page.unroute("**/tokenizer*");
}

// What the browser has kept is loaded by itself, without the server's weights.
async function reloadFromCache(page: Page): Promise<void> {
  const ranges: string[] = [];
  page.on("request", (request) => void (request.url().endsWith("model.safetensors") && ranges.push(request.headers()["range"] ?? "all")));
  await page.reload();
  await page.waitForSelector("#send:enabled", { timeout: 120_000 });
  assert.deepEqual(ranges, ["bytes=0-0"], "one byte, for the version");
  page.removeAllListeners("request");
}

// A model that is refused, or given up, leaves the one before; models with other weights are kept beside each other.
async function changeModels(page: Page): Promise<void> {
  await page.click("#choose-model");
  await drop(page, "body", { files: { "config.json": [...Buffer.from("{}")], "model.safetensors": [1] } });
  await page.waitForSelector("#loader-problem:not([hidden])", { timeout: 60_000 });
  assert.equal(await text(page, "choose-model"), "tiny");
  assert.ok(await page.isEnabled("#send"));
  await cancelLoading(page, "tiny");

  await page.selectOption("#weights", "int8");
  await page.click("#offered .choice");
  await page.waitForFunction(() => document.getElementById("model-facts")!.textContent!.includes("int8"), undefined, { timeout: 120_000 });
  await page.click("#choose-model");
  await page.selectOption("#weights", "int4");
  const kept = (weights: string) => page.locator("#kept li", { hasText: weights });
  await page.waitForFunction(() => document.querySelectorAll("#kept li").length === 2);
  await kept("as stored").locator(".choice").click();
  await page.waitForFunction(() => document.getElementById("model-facts")!.textContent!.includes("f32"), undefined, { timeout: 120_000 });
  assert.equal(await page.inputValue("#weights"), "");
  await page.click("#choose-model");
  await kept("int8").locator(".remove").click();
  await page.waitForFunction(() => document.querySelectorAll("#kept li").length === 1);
  assert.match((await kept("as stored").textContent())!, /tiny/);

  const folder = join(models, "tiny");
  const files = Object.fromEntries(readdirSync(folder).map((name) => [name, [...readFileSync(join(folder, name))]]));
  await drop(page, "body", { files });
  await page.waitForFunction(() => document.getElementById("choose-model")!.textContent === "The model", undefined, { timeout: 120_000 });
  assert.ok(await page.isEnabled("#send"));
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
const browser = await chromium.launch({ executablePath: chromiumPath(), args: ["--headless", "--no-sandbox", "--enable-unsafe-webgpu"] });
try {
  const context = await browser.newContext({ viewport: { width: 1180, height: 860 } });
  const page = await context.newPage();
  const outside: string[] = [];
  page.on("pageerror", (error) => outside.push(error.message));
  context.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) outside.push(request.url());
  });
  await page.addInitScript(shareDevice);
  await page.addInitScript(watchWorkers);
  await page.goto(address);
  await trainOnPage(page);
  await photograph(page, "train");
  await continueAfterReload(page);
  for (const name of caseNames) await runCase(page, name);
  await trainFromTypeScript(page);
  await openOthers(page);
  await showGraph(page);
  await photograph(page, "graph");
  await openGraphs(page);
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
