import {
  DeviceLostError,
  JerboaError,
  Program,
  type Session,
  TextData,
  UnsupportedError,
  UsageError,
  openDevice,
  tensor,
} from "../src/index.js";

// Trains a saved program over bytes of text, draws its loss and lets it write.

const element = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const trainButton = element<HTMLButtonElement>("train");
const writeButton = element<HTMLButtonElement>("write");
const resetButton = element<HTMLButtonElement>("reset");
const saveButton = element<HTMLButtonElement>("save");
const promptField = element<HTMLInputElement>("prompt");
const canvas = element<HTMLCanvasElement>("curve");
const filesField = element<HTMLInputElement>("files");
const textView = element<HTMLDivElement>("text");

const stepsBetweenTexts = 50;
const charactersAText = 160;
const stepsUnderWay = 3; // submitted before the first of them is read, so that the device is never idle

/** A program and the files that came with it. */
interface Bundle {
  readonly name: string;
  readonly program: Uint8Array;
  readonly parameters?: Uint8Array | undefined;
  readonly text?: Uint8Array | undefined;
  /** Of the schedule of its learning rate. */
  readonly steps?: number | undefined;
}

class LossCurve {
  private losses: number[] = [];

  add(loss: number): void {
    this.losses.push(loss);
    this.draw();
  }
  clear(): void {
    this.losses = [];
    this.draw();
  }

  draw(): void {
    const scale = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = canvas;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext("2d")!;
    context.scale(scale, scale);
    const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name);
    const left = 30;
    const bottom = height - 22;
    const most = this.losses.length === 0 ? 6 : Math.ceil(this.losses.reduce((a, b) => Math.max(a, b), 1));
    const count = Math.max(20, this.losses.length);
    const x = (step: number) => left + ((step - 1) / (count - 1)) * (width - left - 8);
    const y = (loss: number) => bottom - (loss / most) * (bottom - 8);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = color("--quiet");
    context.strokeStyle = color("--line");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let loss = 0; loss <= most; loss += Math.ceil(most / 6)) {
      context.beginPath();
      context.moveTo(left, y(loss));
      context.lineTo(width, y(loss));
      context.stroke();
      context.fillText(String(loss), left - 8, y(loss));
    }
    context.textBaseline = "top";
    context.fillText(`step ${count}`, width, bottom + 6);
    this.line(color("--faint"), 1, this.losses, x, y);
    this.line(color("--accent"), 2.5, smoothed(this.losses), x, y);
  }

  private line(color: string, width: number, values: number[], x: (step: number) => number, y: (loss: number) => number): void {
    const context = canvas.getContext("2d")!;
    context.strokeStyle = color;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.beginPath();
    values.forEach((value, i) => context.lineTo(x(i + 1), y(value)));
    context.stroke();
  }
}

/** A moving average, with a wider window for more values. */
function smoothed(values: readonly number[]): number[] {
  const reach = Math.min(20, Math.ceil(values.length / 25));
  return values.map((_, i) => {
    const near = Math.min(reach, i, values.length - 1 - i);
    const window = values.slice(i - near, i + near + 1);
    return window.reduce((sum, value) => sum + value, 0) / window.length;
  });
}

/** Samples one of the `topK` most likely tokens, at this temperature. */
function sample(logits: ArrayLike<number>, temperature: number, topK: number): number {
  const likeliest = Array.from(logits, (logit, id) => ({ logit, id }))
    .sort((a, b) => b.logit - a.logit)
    .slice(0, topK);
  const weights = likeliest.map(({ logit }) => Math.exp((logit - likeliest[0]!.logit) / temperature));
  let rest = Math.random() * weights.reduce((sum, weight) => sum + weight, 0);
  const chosen = weights.findIndex((weight) => (rest -= weight) <= 0);
  return likeliest[Math.max(0, chosen)]!.id;
}

/** A session with its text: what the buttons act on. */
class Playground {
  running = false;
  step = 0;
  private closed = false;
  private work: Promise<void> = Promise.resolve();
  private readonly curve: LossCurve;

  constructor(
    private readonly session: Session,
    private readonly bundle: Bundle,
    private readonly data: TextData,
    private readonly context: number,
    private readonly charactersAStep: number,
    curve: LossCurve,
  ) {
    this.curve = curve;
  }

  static async open(device: GPUDevice, bundle: Bundle, curve: LossCurve): Promise<Playground> {
    const program = await Program.load(device, bundle.program);
    const step = program.entries.find((entry) => entry.name === "step");
    const ids = step?.inputs.find((input) => input.name === "ids");
    if (ids === undefined || ids.shape.length !== 2 || !program.entries.some((entry) => entry.name === "decode"))
      throw new UsageError("this page trains programs with an entry step, over ids[batch, length] and targets, and an entry decode");
    const [batch, length] = ids.shape.map((dim) => dim.evaluate(new Map())) as [number, number];
    const text = bundle.text ?? new TextEncoder().encode(document.body.innerText.repeat(8));
    const session = await program.createSession({ parameters: bundle.parameters });
    return new Playground(session, bundle, new TextData(text, { batch, length }), length, batch * length, curve);
  }

  /** Clears what the page shows of the session before this one. */
  begin(): void {
    this.curve.clear();
    this.show(undefined, undefined);
  }

  /** Ends its training. What is under way is no longer shown. */
  close(): void {
    this.closed = true;
    this.running = false;
    void this.work.finally(() => this.session.destroy());
  }

  start(): void {
    this.running = true;
    this.work = this.work.then(() => this.train()).finally(() => (this.running = false));
    this.work = guarded(this.work);
  }

  private async train(): Promise<void> {
    let began = performance.now();
    let counted = 0;
    const underWay: Promise<number>[] = [];
    const finish = async () => {
      const loss = await underWay.shift()!;
      ++this.step;
      ++counted;
      const seconds = (performance.now() - began) / 1000;
      if (this.closed) return;
      this.curve.add(loss);
      this.show(loss, (counted * this.charactersAStep) / seconds);
      if (!Number.isFinite(loss)) throw new UsageError(`the loss became ${loss} at step ${this.step}`);
    };
    while (this.running) {
      const { ids, targets } = this.data.batch(this.step + underWay.length);
      const loss = this.session.run("step", { ids, targets }).then((out) => out.number("loss"));
      loss.catch(() => undefined);
      underWay.push(loss);
      if (underWay.length >= stepsUnderWay) await finish();
      if (this.running && this.step > 0 && (this.step + underWay.length) % stepsBetweenTexts === 0) {
        while (underWay.length > 0) await finish();
        await this.write();
        began = performance.now();
        counted = 0;
      }
    }
    while (underWay.length > 0) await finish();
  }

  /** Continues the prompt, one byte at a time. */
  async write(): Promise<void> {
    const beginning = promptField.value || "\n";
    const bytes = [...new TextEncoder().encode(beginning)];
    const start = bytes.length;
    for (let i = 0; i < charactersAText; ++i) {
      const window = Int32Array.from(bytes.slice(-this.context));
      const out = await this.session.run("decode", { ids: tensor(window, [1, window.length]) });
      bytes.push(sample((await out.read("output")).data, 0.8, 40));
      if (this.closed) return;
      if (i % 8 === 7 || i === charactersAText - 1)
        showText(beginning, new TextDecoder().decode(Uint8Array.from(bytes.slice(start))));
    }
  }

  writeOnce(): Promise<void> {
    this.work = guarded(this.work.then(() => this.write()));
    return this.work;
  }

  reset(): void {
    this.running = false;
    this.work = guarded(
      this.work.then(() => {
        this.session.reset();
        if (this.bundle.parameters !== undefined) this.session.load(this.bundle.parameters);
        this.step = 0;
        this.begin();
      }),
    );
  }

  async save(): Promise<void> {
    const url = URL.createObjectURL(new Blob([await this.session.save()]));
    const link = document.createElement("a");
    link.href = url;
    link.download = "model.safetensors";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  private show(loss: number | undefined, speed: number | undefined): void {
    if (this.closed) return;
    const { steps } = this.bundle;
    const past = steps !== undefined && this.step >= steps;
    element("schedule").textContent = past ? `The schedule of ${steps} steps is over: training goes on with its last learning rate.` : "";
    element("step").textContent = String(this.step);
    element("loss").textContent = loss?.toFixed(3) ?? "–";
    element("speed").textContent = speed === undefined ? "–" : Math.round(speed).toLocaleString("en");
  }
}

function showText(beginning: string, written: string): void {
  const first = document.createElement("span");
  first.className = "prompt";
  first.textContent = beginning;
  textView.replaceChildren(first, written);
}

function showStatus(text: string): void {
  element("status").textContent = text;
}

function showProblem(error: unknown): void {
  const problem = element("problem");
  const title = document.createElement("strong");
  const message = error instanceof Error ? error.message : String(error);
  title.textContent = message.charAt(0).toUpperCase() + message.slice(1);
  const help = document.createElement("p");
  if (error instanceof UnsupportedError) help.textContent = "Export the program again for smaller limits, or use another device.";
  else if (error instanceof DeviceLostError) help.textContent = "Reload the page to open the device again. The training so far is lost.";
  else if (navigator.gpu === undefined)
    help.textContent =
      "WebGPU is in Chrome and Edge from 113, in Safari from 26, and in Firefox from 141 on Windows; on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu.";
  problem.replaceChildren(title, help);
  problem.hidden = false;
  if (!(error instanceof JerboaError)) console.error(error);
}

/** Shows an error, and continues. */
async function guarded(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    showProblem(error);
  } finally {
    update();
  }
}

async function fetchBytes(path: string): Promise<Uint8Array | undefined> {
  const response = await fetch(path);
  return response.ok ? new Uint8Array(await response.arrayBuffer()) : undefined;
}

async function bundled(): Promise<Bundle | undefined> {
  const folder = "../programs/";
  const manifest = await fetch(`${folder}manifest.json`);
  if (!manifest.ok) return undefined;
  const { steps, ...names } = (await manifest.json()) as Record<string, string> & { steps?: unknown };
  const file = (field: string) => (names[field] === undefined ? Promise.resolve(undefined) : fetchBytes(folder + names[field]));
  const [program, parameters, text] = await Promise.all([file("program"), file("parameters"), file("text")]);
  if (program === undefined) return undefined;
  return { name: names["name"] ?? "The bundled program", program, parameters, text, steps: typeof steps === "number" ? steps : undefined };
}

async function chosen(files: readonly File[]): Promise<Bundle> {
  const find = async (ending: string) => {
    const match = files.find((file) => file.name.endsWith(ending));
    return match === undefined ? undefined : new Uint8Array(await match.arrayBuffer());
  };
  const program = await find(".jerboa");
  if (program === undefined) throw new UsageError("none of the files is a program, whose name ends in .jerboa");
  const name = files.find((file) => file.name.endsWith(".jerboa"))!.name;
  return { name, program, parameters: await find(".safetensors"), text: await find(".txt") };
}

let playground: Playground | undefined;

function update(): void {
  const there = playground !== undefined;
  const running = playground?.running ?? false;
  trainButton.textContent = running ? "Pause" : "Train";
  for (const button of [trainButton, resetButton, saveButton]) button.disabled = !there;
  writeButton.disabled = !there || running;
}

async function main(): Promise<void> {
  const curve = new LossCurve();
  curve.draw();
  addEventListener("resize", () => curve.draw());
  const device = await openDevice();
  void device.lost.then((info) => {
    playground = undefined;
    showProblem(new DeviceLostError(`the graphics device was lost: ${info.message}`, info.reason));
    update();
  });
  filesField.disabled = false;
  const { description, vendor, architecture } = device.adapterInfo;
  const deviceName = description || [vendor, architecture].filter(Boolean).join(" ") || "a graphics device";
  let opened = `${deviceName}. Open a program to begin.`;
  let opening = 0;
  const open = async (bundle: Bundle) => {
    const number = ++opening;
    showStatus(`Compiling ${bundle.name} …`);
    try {
      const fresh = await Playground.open(device, bundle, curve);
      if (number !== opening) return fresh.close(); // another one has been chosen since
      playground?.close();
      playground = fresh;
      fresh.begin();
      element("problem").hidden = true;
      opened = `${bundle.name} on ${deviceName}`;
    } finally {
      if (number === opening) showStatus(opened);
    }
  };
  trainButton.onclick = () => {
    if (playground === undefined) return;
    if (playground.running) playground.running = false;
    else playground.start();
    update();
  };
  writeButton.onclick = () => void playground?.writeOnce();
  resetButton.onclick = () => playground?.reset();
  saveButton.onclick = () => void guarded(playground?.save() ?? Promise.resolve());
  filesField.onchange = () => void guarded(chosen([...(filesField.files ?? [])]).then(open));
  const first = await bundled();
  if (first === undefined) showStatus(opened);
  else await open(first);
}

await guarded(
  main().catch((error: unknown) => {
    showStatus("");
    throw error;
  }),
);
