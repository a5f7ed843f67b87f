import { type CompilerClient, openCompiler } from "../src/compiler/client.js";
import { UsageError, openDevice } from "../src/index.js";
import { crc32 } from "../src/sections.js";
import { type AdapterFacts, describeAdapter, showAdapter } from "./adapter.js";
import { type SavedRun, becomeSaver, forgetRun, loadRun } from "./autosave.js";
import { byId, download, make } from "./dom.js";
import { LossCurve } from "./loss_curve.js";
import { OpeningOrder } from "./opening_order.js";
import { guarded, hideProblem, showProblem } from "./problem.js";
import { showBusy, showReady } from "./status.js";
import "./shared/theme.js";
import { type NamedText, onGiven, pastedText, readText, readable, sizeText } from "./texts.js";
import { type ModelSource, Trainee } from "./trainee.js";
import { type RunView, TrainingRun } from "./training_run.js";
import { WritingView } from "./writing_view.js";

// The page that trains a small GPT on a text, on the visitor's device.

const trainButton = byId<HTMLButtonElement>("train");
const writeButton = byId<HTMLButtonElement>("write");
const resetButton = byId<HTMLButtonElement>("reset");
const saveButton = byId<HTMLButtonElement>("save");
const filesField = byId<HTMLInputElement>("files");
const promptField = byId<HTMLInputElement>("prompt");
const textDialog = byId<HTMLDialogElement>("text-dialog");
const textField = byId<HTMLTextAreaElement>("own-text");

const programsFolder = "../programs/";
const quickLosses = 3; // a device that is lost this often within a minute is not reopened
const manySteps = 500; // runs this long are not discarded without asking, even on request

let device: GPUDevice | undefined;
let adapter: AdapterFacts | undefined;
let compiler: CompilerClient | undefined;
let model: ModelSource | undefined;
let text: NamedText | undefined;
let run: TrainingRun | undefined;
let isSaver = true;
const order = new OpeningOrder();
let openings = 0; // models that are being compiled
const lossTimes: number[] = [];

const writing = new WritingView();
const curve = new LossCurve(byId("curve"), chooseSample);
let chosenStep = -1;

// ---- what the page shows

const view: RunView = {
  onStep(now, rate, bytesPerSecond) {
    if (now === run) showStep(now, rate, bytesPerSecond);
  },
  onText: (prompt) => writing.begin(prompt),
  onChoice: (choice) => writing.add(choice),
  onSample(now) {
    if (now === run) showSamples(now);
  },
  onSaved: (savedAt) => showSaved(savedAt),
  prompt: () => promptField.value,
};

function showStep(now: TrainingRun, rate: number | undefined, bytesPerSecond: number | undefined): void {
  const { steps } = now.trainee.source;
  const isPast = steps !== undefined && now.step >= steps;
  byId("schedule").textContent = isPast ? `The schedule of ${steps.toLocaleString("en")} steps is over: training goes on with its last learning rate.` : "";
  byId("step").textContent = now.step.toLocaleString("en");
  const loss = now.losses.at(-1) ?? NaN; // unknown for the steps before a checkpoint
  byId("loss").textContent = Number.isFinite(loss) ? loss.toFixed(3) : "–";
  byId("speed").textContent = bytesPerSecond === undefined ? "–" : Math.round(bytesPerSecond).toLocaleString("en");
  byId("rate").textContent = rate === undefined ? "–" : rate.toExponential(1).replace("e-", "·10⁻").replace(/⁻(\d+)/, (_, digits: string) => `⁻${superscript(digits)}`);
  showCurve(now);
}

const superscript = (digits: string) => [...digits].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]).join("");

function showCurve(now: TrainingRun): void {
  const marks = now.samples.map((sample) => ({ step: sample.step, label: `Step ${sample.step}: ${readable(sample.text.slice(0, 80))}` }));
  curve.show(now.losses, marks, chosenStep);
}

function showSamples(now: TrainingRun): void {
  byId("samples").replaceChildren(
    ...now.samples.toReversed().map((sample) => {
      const loss = Number.isFinite(sample.loss) ? `loss ${sample.loss.toFixed(2)}` : sample.step === 0 ? "untrained" : "";
      const head = make("span", "sample-head", make("b", "", `Step ${sample.step.toLocaleString("en")}`), ` ${loss}`);
      const row = make("li", sample.step === chosenStep ? "chosen" : "", head, make("span", "sample-text", make("i", "", sample.prompt), readable(sample.text)));
      row.dataset["step"] = String(sample.step);
      return row;
    }),
  );
  byId("no-samples").hidden = now.samples.length > 0;
  showCurve(now);
}

function chooseSample(step: number): void {
  chosenStep = chosenStep === step ? -1 : step;
  if (run === undefined) return;
  showSamples(run);
  const row = byId("samples").querySelector(".chosen");
  const list = byId("samples");
  if (row instanceof HTMLElement) list.scrollTo({ top: row.offsetTop - list.offsetTop, behavior: "smooth" });
}

function showSaved(savedAt: number | undefined): void {
  const time = savedAt === undefined ? "" : new Date(savedAt).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  byId("saved").textContent = savedAt === undefined ? "This browser has no room to keep the training: Save it before you leave." : `Kept in this browser, ${time}`;
}

function showText(): void {
  byId("text-name").textContent = text === undefined ? "No text yet" : text.name;
  byId("text-size").textContent = text === undefined ? "" : sizeText(text.bytes.length);
  byId("text-preview").textContent = text === undefined ? "Choose, drop or paste one, and a small GPT learns to write like it." : new TextDecoder().decode(text.bytes.subarray(0, 600));
}

function update(): void {
  const isRunning = run?.running ?? false;
  const isPausing = !isRunning && (run?.isTraining ?? false);
  trainButton.textContent = isRunning ? "Pause" : isPausing ? "Pausing …" : "Train";
  for (const button of [trainButton, resetButton, saveButton]) button.disabled = run === undefined;
  if (isPausing) trainButton.disabled = true;
  writeButton.disabled = run === undefined || isRunning;
  document.body.classList.toggle("training", isRunning);
}

function showRun(now: TrainingRun): void {
  chosenStep = -1;
  showStep(now, undefined, undefined);
  showSamples(now);
  const last = now.samples.at(-1);
  if (last !== undefined) writing.showSample(last.prompt, last.text);
  showText();
  update();
}

// ---- what the page does

async function reopenDevice(): Promise<GPUDevice> {
  const opened = await openDevice();
  device = opened;
  adapter = describeAdapter(opened);
  showAdapter(adapter);
  void opened.lost.then((info) => {
    if (device === opened) void guarded(recover(info.message));
  });
  return opened;
}

/** Compiles a model for the device, and replaces the current run by one of it. Changes nothing if that fails. */
async function open(source: ModelSource, given: NamedText, ticket: number, saved?: SavedRun): Promise<TrainingRun | undefined> {
  let made: Trainee | undefined;
  ++openings;
  try {
    device ??= await reopenDevice();
    if (compiler === undefined) showBusy("Loading the compiler");
    compiler ??= await openCompiler();
    made = await Trainee.compile(device, source, compiler, (doing) => showBusy(`${doing} for ${adapter!.name}`));
    const fresh = new TrainingRun(made, given.name, given.bytes, view, isSaver, saved);
    if (saved === undefined && source.parameters !== undefined) await fresh.takeSteps();
    if (!order.accept(ticket)) return void made.destroy(); // another one has been chosen since
    const old = run;
    run = fresh;
    model = source;
    text = given;
    void old?.close().then(() => old.trainee.destroy());
    if (order.isLatest(ticket)) hideProblem();
    showRun(fresh);
    return fresh;
  } catch (error) {
    if (run?.trainee !== made) made?.destroy();
    if (order.isOutdated(ticket)) return undefined;
    throw error;
  } finally {
    if (--openings === 0) showReady(run === undefined ? "" : `${run.trainee.source.name} · ${run.trainee.kernels} kernels compiled for this device`);
    update();
  }
}

/** Restarts the training of the model, on this text. */
async function begin(given: NamedText, ticket: number): Promise<void> {
  if (run === undefined || model === undefined) throw new UsageError("there is no model to train yet");
  const old = run;
  const fresh = new TrainingRun(old.trainee, given.name, given.bytes, view, isSaver);
  if (!order.accept(ticket)) return; // another one has been chosen since
  const { parameters, fingerprint } = model;
  run = fresh;
  await old.close();
  if (run !== fresh) return;
  text = given;
  fresh.trainee.session.reset();
  if (parameters !== undefined) {
    fresh.trainee.load(parameters);
    await fresh.takeSteps();
  }
  if (isSaver) await forgetRun(fingerprint);
  if (run !== fresh) return;
  byId("saved").textContent = "";
  if (order.isLatest(ticket)) hideProblem();
  writing.showSample("", "");
  showRun(fresh);
}

/** Continues from a checkpoint and its step, on the same text. */
async function beginFrom(checkpoint: Uint8Array<ArrayBuffer>, ticket: number): Promise<void> {
  if (run === undefined || text === undefined) throw new UsageError("there is no model to load the checkpoint into yet");
  if (order.isOutdated(ticket)) return;
  const old = run;
  await old.stop();
  if (run !== old || order.isOutdated(ticket)) return; // another one has been opened since
  const fresh = await TrainingRun.fromCheckpoint(old.trainee, text.name, text.bytes, view, isSaver, checkpoint);
  if (run !== old || !order.accept(ticket)) return;
  run = fresh;
  void old.close();
  if (order.isLatest(ticket)) hideProblem();
  writing.showSample("", "");
  showRun(fresh);
}

/** Whether the training run may be discarded: asks if that would lose at least `steps` steps. */
function mayForget(steps: number): boolean {
  return run === undefined || run.step < steps || confirm(`Forget the training of ${run.step.toLocaleString("en")} steps?`);
}

/** The device is lost, with everything on it: continues from the last autosave. */
async function recover(message: string): Promise<void> {
  const ticket = order.ask();
  const now = performance.now();
  lossTimes.push(now);
  const wasRunning = run?.running ?? false;
  const saved = run?.saved;
  await run?.close();
  run = undefined;
  device = undefined;
  update();
  if (lossTimes.filter((time) => now - time < 60_000).length > quickLosses)
    throw new UsageError(`the graphics device is lost again and again${message === "" ? "" : `: ${message}`}; reload the page to try once more`);
  if (model === undefined || text === undefined) return;
  showBusy("The graphics device was lost: opening it again");
  const fresh = await open(model, text, ticket, saved);
  if (fresh === undefined) return;
  showReady(saved === undefined ? "The graphics device was lost before the first autosave: training begins anew." : `The graphics device was lost: training goes on from step ${saved.losses.length.toLocaleString("en")}, the last autosave.`);
  if (wasRunning) start();
}

function start(): void {
  if (run === undefined) return;
  const started = run;
  void guarded(started.start().finally(update));
  update();
}

// ---- where models and texts come from

async function fetchBytes(path: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const response = await fetch(path);
  return response.ok ? new Uint8Array(await response.arrayBuffer()) : undefined;
}

async function bundled(): Promise<{ source: ModelSource; text: NamedText } | undefined> {
  const response = await fetch(`${programsFolder}manifest.json`);
  if (!response.ok) return undefined;
  const manifest = (await response.json()) as Readonly<Record<string, string | number | undefined>>;
  const file = (field: string) => (manifest[field] === undefined ? undefined : fetchBytes(programsFolder + manifest[field]));
  const [graphs, given] = await Promise.all([file("graphs"), file("text")]);
  if (graphs === undefined) return undefined;
  const source = {
    name: String(manifest["name"] ?? "The model"),
    graphs: JSON.parse(new TextDecoder().decode(graphs)) as Record<string, unknown>,
    steps: typeof manifest["steps"] === "number" ? manifest["steps"] : undefined,
    fingerprint: crc32(graphs).toString(16),
  };
  return { source, text: { name: String(manifest["text_name"] ?? "The exported text"), bytes: given ?? new Uint8Array() } };
}

/** Opens programs, checkpoints and texts that a visitor chose. */
async function take(files: readonly File[]): Promise<void> {
  const ticket = order.ask();
  const ending = (...endings: string[]) => files.find((file) => endings.some((one) => file.name.endsWith(one)));
  const bytesOf = async (file: File | undefined) => (file === undefined ? undefined : new Uint8Array(await file.arrayBuffer()));
  const [program, parameters] = [ending(".jerboa"), ending(".safetensors")];
  const other = files.find((file) => file !== program && file !== parameters && !file.name.endsWith(".json"));
  const given = other === undefined ? undefined : await readText(other);
  if (program !== undefined) {
    const bytes = (await bytesOf(program))!;
    const source = { name: program.name, program: bytes, parameters: await bytesOf(parameters), fingerprint: crc32(bytes).toString(16) };
    // A checkpoint that was opened with the program takes precedence over the saved run.
    const saved = isSaver && parameters === undefined ? await loadRun(source.fingerprint) : undefined;
    const kept = saved === undefined ? undefined : { name: saved.textName, bytes: saved.text };
    await open(source, given ?? kept ?? text ?? pastedText(document.body.innerText.repeat(8)), ticket, given === undefined ? saved : undefined);
    return;
  }
  if (given !== undefined) await begin(given, ticket);
  if (parameters !== undefined) await beginFrom((await bytesOf(parameters))!, ticket);
  if (given === undefined && parameters === undefined) throw new UsageError("none of the files is a text, a program (.jerboa) or a checkpoint (.safetensors)");
}

async function main(): Promise<void> {
  curve.show([], []);
  update();
  showBusy("Looking for WebGPU");
  isSaver = await becomeSaver();
  if (!isSaver) byId("saved").textContent = "Another page trains already: this one is not kept in the browser.";
  await reopenDevice();
  filesField.disabled = false;
  const ticket = order.ask();
  const first = await bundled();
  if (first === undefined) {
    showReady("There is no model here: ./dev web exports one, or open a program (.jerboa).");
    return;
  }
  const saved = isSaver ? await loadRun(first.source.fingerprint) : undefined;
  await open(first.source, saved === undefined ? first.text : { name: saved.textName, bytes: saved.text }, ticket, saved);
  if (saved !== undefined) showSaved(saved.savedAt);
}

trainButton.onclick = () => {
  if (run?.running === true) run.pause();
  else start();
  update();
};
writeButton.onclick = () => void guarded(run?.write() ?? Promise.resolve());
resetButton.onclick = () => {
  if (run !== undefined && text !== undefined && mayForget(manySteps)) void guarded(begin(text, order.ask()));
};
saveButton.onclick = () => void guarded((run?.checkpoint() ?? Promise.reject(new UsageError("there is nothing to save"))).then((bytes) => download(bytes, "model.safetensors")));
filesField.onchange = () => {
  const files = [...(filesField.files ?? [])];
  filesField.value = "";
  if (files.length > 0 && mayForget(manySteps)) void guarded(take(files));
};
byId("paste").onclick = () => {
  textField.value = "";
  textDialog.showModal();
};
textDialog.onclose = () => {
  if (textDialog.returnValue === "train" && textField.value.trim() !== "" && mayForget(manySteps)) void guarded(begin(pastedText(textField.value), order.ask()).then(start));
};
// A dropped or pasted file may have been meant for something else, so losing even one step needs confirmation.
onGiven({
  files: (files) => void (mayForget(1) && guarded(take(files))),
  text: (given) => void (mayForget(1) && guarded(begin(pastedText(given), order.ask()))),
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) run?.requestSave();
});

try {
  await main();
} catch (error) {
  showReady("");
  showProblem(error);
}
