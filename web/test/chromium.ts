import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, readdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { type Page, chromium } from "playwright-core";

import { readSafetensors } from "../src/safetensors.js";
import { crc32 } from "../src/sections.js";
import { serve } from "../tools/serve.js";
import { type CaseReport, caseNames } from "./check_case.js";
import { chromiumPath } from "./chromium_path.js";

// Runs every case in Debian's Chromium, on its software driver, then the pages, and takes screenshots of them:
//   node dist/test/chromium.js CASES PICTURE

const [cases = "", picture = "web-page.png"] = process.argv.slice(2);
const longestWait = 300_000; // milliseconds: software drivers compile on the CPU, which may be busy

async function runCase(page: Page, name: string): Promise<void> {
  const report: CaseReport = await page.evaluate(async (folder) => {
    const { checkCase } = (await import(`${location.origin}/dist/test/check_case.js`)) as typeof import("./check_case.js");
    const { openDevice } = (await import(`${location.origin}/dist/src/index.js`)) as typeof import("../src/index.js");
    return checkCase(await openDevice(), async (file) => {
      const response = await fetch(`/programs/${folder}/${file}`);
      if (!response.ok) throw new Error(`${folder}/${file} is not there`);
      return new Uint8Array(await response.arrayBuffer());
    });
  }, name);
  console.log(`${name}: ${report.runs} runs in ${Math.round(report.milliseconds)} ms; from native WebGPU ${report.fromWebgpu.toExponential(1)}, from the CPU ${report.fromCpu.toExponential(1)}`);
  assert.ok(report.fromWebgpu <= 2e-3 && report.fromCpu <= 2e-3, `${name} differs from the native results`);
}

// Compiling shaders takes most of the time here, so all devices that a page opens are the same one.
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
  await workersEnd(page, workers); // the compiler's worker does not outlive its trainer
}

/** Waits until only this many workers are left: Playwright notices the end of one with a delay. */
async function workersEnd(page: Page, left: number): Promise<void> {
  for (const began = performance.now(); page.workers().length > left && performance.now() - began < longestWait; ) await page.waitForTimeout(20);
  assert.equal(page.workers().length, left, "workers that outlive what they were for");
}

const isFull = process.env["JERBOA_SOAK_SECONDS"] !== undefined;
const text = (page: Page, id: string) => page.textContent(`#${id}`).then((found) => found ?? "");
const isReady = (page: Page) => page.waitForFunction(() => !(document.getElementById("train") as HTMLButtonElement).disabled);

let checkpoint: Buffer;
const stepsOf = (bytes: Uint8Array) => readSafetensors(bytes).tensors.get("jerboa.state/step")!.data[0]!;

async function saveWhileTraining(page: Page): Promise<Buffer> {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
  const bytes = readFileSync(await download.path());
  assert.ok(stepsOf(bytes) >= 5);
  assert.equal(await text(page, "train"), "Pause", "training goes on");
  return bytes;
}

/** Drops files or a text on an element; returns whether the page accepts them. */
function drop(page: Page, selector: string, given: { readonly files?: Readonly<Record<string, Buffer>>; readonly text?: string }): Promise<boolean> {
  // As base64, because Playwright takes seconds for long lists of numbers.
  const packed = Object.entries(given.files ?? {}).map(([name, bytes]) => [name, bytes.toString("base64")] as const);
  return page.evaluate(
    ([on, files, text]) => {
      const dataTransfer = new DataTransfer();
      const unpacked = (base64: string) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      for (const [name, base64] of files) dataTransfer.items.add(new File([unpacked(base64)], name));
      if (text !== undefined) dataTransfer.setData("text/plain", text);
      const send = (type: string) => !document.querySelector(on)!.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
      const isTaken = send("dragover");
      if (document.body.classList.contains("dropping") !== isTaken) throw new Error("the page does not show what it takes");
      return send("drop") && isTaken;
    },
    [selector, packed, given.text] as const,
  );
}

// A drop may have been meant for something else, so the page asks before it discards a training run.
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
  assert.ok(await drop(page, "body", { files: { "snow.txt": Buffer.from("Snow falls. ".repeat(40)) } }));
  assert.equal(await text(page, "step"), step); // the page asked, and was answered, while it handled the drops
  assert.deepEqual(questions, new Array(2).fill(`Forget the training of ${step} steps?`));
  isYes = true;
  await drop(page, "body", { files: { "snow.txt": Buffer.from("Snow falls. ".repeat(40)) } });
  await page.waitForFunction(() => document.getElementById("text-name")!.textContent === "snow.txt");
  assert.equal(await text(page, "step"), "0");
  page.removeAllListeners("dialog");
}

// Opening a checkpoint during another training run continues from the checkpoint's step.
async function openCheckpoint(page: Page): Promise<void> {
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 1);
  await page.setInputFiles("#files", { name: "model.safetensors", mimeType: "", buffer: checkpoint });
  // Checked in one call, because the previous training run may pass this step, too.
  await page.waitForFunction((step) => {
    const shown = (id: string) => document.getElementById(id)!.textContent;
    return shown("step") === step && shown("train") === "Train" && shown("loss") === "–";
  }, String(stepsOf(checkpoint)));
  assert.ok(await page.isHidden("#problem"), await text(page, "problem"));
}

// A checkpoint that is opened with a program takes precedence over the browser's saved run of that program.
async function openProgramWithCheckpoint(page: Page): Promise<void> {
  const program = readFileSync(join(cases, "gpt.jerboa"));
  await page.evaluate(
    async ([model, bytes]) => {
      const { saveRun } = (await import(`${location.origin}/dist/page/autosave.js`)) as typeof import("../page/autosave.js");
      const text = new TextEncoder().encode("The text of the earlier training. ".repeat(20));
      await saveRun({ model, textName: "earlier.txt", text, losses: [3, 2, 1], samples: [], checkpoint: Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0)), savedAt: Date.now() });
    },
    [crc32(program).toString(16), checkpoint.toString("base64")] as const,
  );
  await page.setInputFiles("#files", [
    { name: "gpt.jerboa", mimeType: "", buffer: program },
    { name: "model.safetensors", mimeType: "", buffer: checkpoint },
  ]);
  await page.waitForFunction(() => document.getElementById("status")!.textContent!.startsWith("gpt.jerboa"));
  assert.equal(await text(page, "step"), String(stepsOf(checkpoint)), "not that of the earlier training, 3");
  assert.notEqual(await text(page, "text-name"), "earlier.txt");
  assert.ok(await page.isHidden("#problem"), await text(page, "problem"));
}

// Training runs of several models do not replace each other.
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

// The graphs are compiled for this device, samples are generated from the first step on, and the run is saved.
async function trainOnPage(page: Page): Promise<void> {
  await isReady(page);
  assert.match(await text(page, "status"), /^A character GPT · \d+ kernels compiled for this device$/);
  assert.match(await text(page, "adapter"), / · software$/);
  await page.click("#train");
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 5);
  checkpoint = await saveWhileTraining(page);
  await page.waitForFunction(() => Number(document.getElementById("step")!.textContent) >= 60);
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Train");
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

// After a reload, or the loss of the device, only the steps since the last autosave are lost.
async function continueAfterReload(page: Page): Promise<void> {
  const [step, samples] = [await text(page, "step"), await page.locator("#samples li").count()];
  await page.reload();
  await isReady(page);
  assert.equal(await text(page, "step"), step);
  assert.equal(await page.locator("#samples li").count(), samples);
  await page.click("#train");
  await page.waitForFunction((before) => Number(document.getElementById("step")!.textContent) > before, Number(step));
  await page.click("#train");
  await page.waitForFunction(() => document.getElementById("train")!.textContent === "Train");
  assert.ok(Number(await text(page, "loss")) < 4.5);
  if (!isFull) return;
  const kept = await text(page, "step");
  await page.evaluate(() => (globalThis as unknown as { loseDevice(): void }).loseDevice());
  await page.waitForFunction((saved) => document.getElementById("status")!.textContent!.includes(`goes on from step ${saved}`), kept);
  assert.equal(await text(page, "step"), kept);
}

// A refused file leaves the current run unchanged; an accepted one replaces it, even while it is running.
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
  assert.equal(await text(page, "step"), "0"); // the old run's steps finish before the text is shown
  assert.equal(await text(page, "train"), "Train");
  assert.ok(await page.isHidden("#problem"));
  await openCheckpoint(page);
  await dropTexts(page);
  await openProgramWithCheckpoint(page);
  await keepSeveralRuns(page);
  if (!isFull) return;
  await page.setInputFiles("#files", [`${cases}/gpt.jerboa`, `${cases}/text.txt`]);
  await page.waitForFunction(() => document.getElementById("status")!.textContent!.startsWith("gpt.jerboa"));
}

async function showGraph(page: Page): Promise<void> {
  await page.goto(`${address}/page/graph.html`);
  await page.waitForSelector("#work:not([hidden])");
  assert.match(await text(page, "summary"), /^\d+ ops become \d+ kernels, one submit$/);
  assert.ok((await page.locator("#graph .node").count()) > 50);
  await page.click("#profile");
  await page.waitForFunction(() => / (ms|µs) by the /.test(document.getElementById("summary")!.textContent!));
  await page.click("#kernels .kernel:has-text('matmul')");
  assert.match(await text(page, "wgsl"), /@compute @workgroup_size/);
  assert.ok((await page.locator("#graph .in-kernel").count()) >= 1);
  assert.ok(await page.isHidden("#problem"));
}

/** Holds back the contents of files of this name until `released` is called in the page. */
function holdFile(page: Page, name: string): Promise<void> {
  return page.evaluate((held) => {
    const read = Blob.prototype.text;
    const isReleased = new Promise<void>((resolve) => Object.assign(globalThis, { released: resolve }));
    Blob.prototype.text = async function (this: Blob) {
      if ((this as File).name === held) await isReleased;
      return read.call(this);
    };
  }, name);
}

/** Releases the file, and waits until the page has processed it. */
function releaseFile(page: Page): Promise<void> {
  return page.evaluate(async () => {
    (globalThis as unknown as { released(): void }).released();
    for (let i = 0; i < 5; ++i) await new Promise((resolve) => setTimeout(resolve));
  });
}

// If two files are opened, the last one is shown, however long each takes to read and compile.
async function openGraphs(page: Page): Promise<void> {
  for (const given of ["null", "[]", "3", "{}"]) {
    await page.setInputFiles("#files", { name: `${given.length}.json`, mimeType: "", buffer: Buffer.from(given) });
    await page.waitForFunction((name) => document.getElementById("problem")!.textContent!.startsWith(name), `${given.length}.json`);
    assert.match(await text(page, "problem"), /is not a graph|has no graphs/);
  }
  const tensors = [{ name: "x", dtype: "f32", shape: [4], storage: "input" }, { name: "y", dtype: "f32", shape: [4] }];
  const nodes = [{ op: "tensor_input", inputs: [], outputs: [0] }, { op: "exp", inputs: [0], outputs: [1] }];
  const small = { version: 1, training: false, symbols: {}, tensors, nodes, outputs: { y: 1 }, captures: {}, updates: [], constants: [] };
  const open = (name: string, content: string) => page.setInputFiles("#files", { name, mimeType: "", buffer: Buffer.from(content) });
  const isSmallShown = () => document.getElementById("entries")!.textContent === "small";
  await page.setInputFiles("#files", `${cases}/graphs.json`);
  await open("small.json", JSON.stringify({ small }));
  await page.waitForFunction(isSmallShown);
  await workersEnd(page, 0); // the larger one is compiled too
  assert.equal(await text(page, "entries"), "small");
  assert.match(await text(page, "status"), /^Compiled for this device/);
  assert.ok(await page.isHidden("#problem"));

  await holdFile(page, "slow.json");
  await open("slow.json", JSON.stringify({ slow: small }));
  await open("small.json", JSON.stringify({ small, tiny: small }));
  await page.waitForFunction(() => document.getElementById("entries")!.textContent === "smalltiny");
  await releaseFile(page);
  await workersEnd(page, 0);
  assert.equal(await text(page, "entries"), "smalltiny");
  assert.match(await text(page, "status"), /^Compiled for this device/);

  // A file that cannot be opened does not cancel another one that is being opened, which in turn does not hide the error.
  await holdFile(page, "slow.json");
  await open("slow.json", JSON.stringify({ slow: small }));
  await open("empty.json", "{}");
  await page.waitForSelector("#problem:not([hidden])");
  await releaseFile(page);
  await page.waitForFunction(() => document.getElementById("entries")!.textContent === "slow");
  assert.match(await text(page, "status"), /^Compiled for this device/);
  assert.match(await text(page, "problem"), /^Empty.json has no graphs/);
  assert.ok(await page.isVisible("#problem"));
}

// A model from the server answers, is stopped and answers again; the conversation is kept.
async function chat(page: Page): Promise<void> {
  await page.goto(`${address}/page/chat.html`);
  await photograph(page, "chat-empty");
  await cancelLoading(page, "Choose a model");
  await page.click("#offered .choice");
  await page.waitForSelector("#send:enabled");
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
  await page.waitForFunction(isCut);
  const first = await page.textContent(".assistant .body");
  await page.click("text=Regenerate");
  await page.waitForFunction(isCut);
  assert.equal(await page.textContent(".assistant .body"), first);
  await page.click("#open-settings");
  await page.fill("#max_tokens", "3000"); // so that there is time to stop it
  await page.click("#settings .primary");
  await page.fill("#text", "More");
  await page.press("#text", "Enter");
  // In the page, so that it does not depend on when the test continues.
  const stop = () => {
    const isWriting = (document.querySelectorAll(".assistant .body")[1]?.textContent ?? "").length > 3;
    if (isWriting) document.getElementById("stop")!.click();
    return isWriting;
  };
  await page.waitForFunction(stop);
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
  await page.waitForFunction((wanted) => document.getElementById("choose-model")!.textContent === wanted, shown);
  assert.equal(await page.getAttribute("#loader", "data-state"), "choosing");
  assert.ok(await page.isHidden("#loader-problem"));
  await page.unroute("**/tokenizer*");
}

// A cached model is loaded automatically, without the server's weights.
async function reloadFromCache(page: Page): Promise<void> {
  const ranges: string[] = [];
  page.on("request", (request) => void (request.url().endsWith("model.safetensors") && ranges.push(request.headers()["range"] ?? "all")));
  await page.reload();
  await page.waitForSelector("#send:enabled");
  assert.deepEqual(ranges, ["bytes=0-0"], "one byte, for the version");
  page.removeAllListeners("request");
}

// A model that is refused, or given up, leaves the one before; models with other weights are kept beside each other.
async function changeModels(page: Page): Promise<void> {
  await page.click("#choose-model");
  await drop(page, "body", { files: { "config.json": Buffer.from("{}"), "model.safetensors": Buffer.of(1) } });
  await page.waitForSelector("#loader-problem:not([hidden])");
  assert.equal(await text(page, "choose-model"), "tiny");
  assert.ok(await page.isEnabled("#send"));
  await cancelLoading(page, "tiny");

  await page.selectOption("#weights", "int8");
  await page.click("#offered .choice");
  await page.waitForFunction(() => document.getElementById("model-facts")!.textContent!.includes("int8"));
  await page.click("#choose-model");
  await page.selectOption("#weights", "int4");
  const kept = (weights: string) => page.locator("#kept li", { hasText: weights });
  await page.waitForFunction(() => document.querySelectorAll("#kept li").length === 2);
  await kept("as stored").locator(".choice").click();
  await page.waitForFunction(() => document.getElementById("model-facts")!.textContent!.includes("f32"));
  assert.equal(await page.inputValue("#weights"), "");
  await page.click("#choose-model");
  await kept("int8").locator(".remove").click();
  await page.waitForFunction(() => document.querySelectorAll("#kept li").length === 1);
  assert.match((await kept("as stored").textContent())!, /tiny/);

  const folder = join(models, "tiny");
  const files = Object.fromEntries(readdirSync(folder).map((name) => [name, readFileSync(join(folder, name))]));
  await drop(page, "body", { files });
  await page.waitForFunction(() => document.getElementById("choose-model")!.textContent === "The model");
  assert.ok(await page.isEnabled("#send"));
  await loseDevice(page);
}

// The model that is loaded again is the one that there was, whatever was chosen in vain since.
async function loseDevice(page: Page): Promise<void> {
  await page.route("**/tokenizer*", () => undefined);
  await page.click("#choose-model");
  await page.click("#offered .choice");
  await page.waitForFunction(() => document.getElementById("choose-model")!.textContent!.startsWith("Loading tiny"));
  await drop(page, "body", { files: { "config.json": Buffer.from("{}"), "model.safetensors": Buffer.of(1) } });
  await page.waitForSelector("#loader-problem:not([hidden])");
  assert.equal(await text(page, "choose-model"), "The model");
  const loadsBefore = await page.evaluate(() => {
    const { posted, loseDevice } = globalThis as unknown as { posted: Posted[]; loseDevice(): void };
    loseDevice();
    return posted.filter(({ name }) => name === "jerboa_language_create").length;
  });
  await page.waitForFunction((before) => {
    const { posted } = globalThis as unknown as { posted: Posted[] };
    const isLoadedAgain = posted.filter(({ name }) => name === "jerboa_language_create").length > before;
    return isLoadedAgain && document.getElementById("choose-model")!.textContent === "The model";
  }, loadsBefore);
  assert.ok(await page.isEnabled("#send"));
  await page.unroute("**/tokenizer*");
}

/** Says how long it takes. */
async function timed(what: string, body: () => Promise<void>): Promise<void> {
  const began = performance.now();
  await body();
  console.log(`${what}: ${Math.round(performance.now() - began)} ms`);
}

// In light, dark and on a phone.
async function photograph(page: Page, name: string): Promise<void> {
  const path = (kind: string) => picture.replace(/\.png$/, `-${name}${kind}.png`);
  await page.screenshot({ path: path(""), fullPage: true });
  await page.emulateMedia({ colorScheme: "dark" });
  await page.screenshot({ path: path("-dark"), fullPage: true });
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 390, height: 844 });
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)))); // until it is laid out
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `the page ${name} is wider than a phone`);
  await page.screenshot({ path: path("-phone"), fullPage: true });
  await page.setViewportSize({ width: 1180, height: 860 });
}

// The server's tests have a tiny model of bytes.
const { makeModel } = (await import(new URL("../../../tests/server/live.js", import.meta.url).href)) as { makeModel(): string };
const models = mkdtempSync(join(tmpdir(), "jerboa-models-"));
renameSync(makeModel(), join(models, "tiny"));

const { server, address } = await serve({ programs: cases, models });

/** Runs tests in a page of a browser of their own, whose driver is then busy with nothing else. */
async function inBrowser(tests: (page: Page) => Promise<void>): Promise<void> {
  const browser = await chromium.launch({ executablePath: chromiumPath(), args: ["--headless", "--no-sandbox", "--enable-unsafe-webgpu"] });
  try {
    const context = await browser.newContext({ viewport: { width: 1180, height: 860 } });
    context.setDefaultTimeout(longestWait);
    const outside: string[] = [];
    context.on("request", (request) => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) outside.push(request.url());
    });
    const page = await context.newPage();
    page.on("pageerror", (error) => outside.push(error.message));
    await tests(page);
    assert.deepEqual(outside, [], "requests to elsewhere, or errors");
  } finally {
    await browser.close();
  }
}

async function testTraining(page: Page): Promise<void> {
  await page.addInitScript(shareDevice);
  await page.goto(address);
  await timed("training", () => trainOnPage(page));
  await timed("pictures", () => photograph(page, "train"));
  await timed("continuing", () => continueAfterReload(page));
  for (const name of caseNames) await runCase(page, name);
  await timed("a model of the page", () => trainFromTypeScript(page));
  await timed("opening others", () => openOthers(page));
}

async function testModels(page: Page): Promise<void> {
  await page.addInitScript(shareDevice);
  await page.addInitScript(watchWorkers);
  await timed("the graph", () => showGraph(page));
  await timed("pictures", () => photograph(page, "graph"));
  await timed("opening graphs", () => openGraphs(page));
  await timed("chatting", () => chat(page));
}

async function testWithoutWebgpu(page: Page): Promise<void> {
  await page.addInitScript(() => Object.defineProperty(Navigator.prototype, "gpu", { get: () => undefined }));
  await page.goto(`${address}/page/index.html`);
  await page.waitForSelector("#problem:not([hidden])");
  assert.match(await text(page, "problem"), /This browser has no WebGPU.*Chrome/s);
  await page.screenshot({ path: picture.replace(/\.png$/, "-without.png") });
}

try {
  // The driver of a browser compiles shaders one after another, on one core.
  await Promise.all([inBrowser(testTraining), inBrowser(testModels).then(() => inBrowser(testWithoutWebgpu))]);
} finally {
  server.close();
  rmSync(models, { recursive: true });
}
