import { openCompiler } from "../src/compiler/client.js";
import { describeDevice } from "../src/compiler/compiler.js";
import { type Entry, type Input, Program, type Session, type StepTimes, UsageError, openDevice, tensor } from "../src/index.js";
import { describeAdapter, showAdapter } from "./adapter.js";
import { byId, make, makeSvg } from "./dom.js";
import { type Layout, layOut, nodeSize } from "./graph_layout.js";
import { type TracedGraph, type ViewNode, viewNodes } from "./graph_model.js";
import { OpeningOrder } from "./opening_order.js";
import { guarded, hideProblem, showProblem } from "./problem.js";
import "./shared/theme.js";
import { showBusy, showReady } from "./status.js";
import { onGiven } from "./texts.js";
import { highlighted } from "./wgsl_view.js";

// The page that shows a traced graph, the kernels that it compiles to for this device, and their times.

const profiledRuns = 5;
const graphsAddress = "../programs/graphs.json";

let device: GPUDevice;
let graphs: Readonly<Record<string, TracedGraph>> = {};
let program: Program;
let entry: Entry;
let nodes: ViewNode[] = [];
let layout: Layout;
let zoom = 1;
let kernel: number | undefined;
let node: number | undefined;
const times = new Map<string, StepTimes>();
let sessions = new Map<string, Session>();
const order = new OpeningOrder();

// ---- the graph

const familyOf = (op: string) =>
  op === "input" ? "input" : /matmul|attention|conv/.test(op) ? "product" : /norm|softmax|sum|mean|max$|min$|cross_entropy/.test(op) ? "reduction" : /reshape|transpose|slice|concat|broadcast|split|squeeze/.test(op) ? "shape" : /update/.test(op) ? "update" : "element";

function drawGraph(): void {
  const box = byId("graph");
  const drawing = makeSvg("svg", { width: layout.width * zoom, height: layout.height * zoom, viewBox: `0 0 ${layout.width} ${layout.height}`, role: "img", "aria-label": `The traced graph of ${entry.name}` });
  const edges = makeSvg("g", { class: "edges" });
  const boxes = makeSvg("g", {});
  for (const one of nodes) {
    const to = layout.places[one.number]!;
    for (const other of one.before) {
      const from = layout.places[other]!;
      const [x1, y1, x2, y2] = [from.x + nodeSize.width / 2, from.y + nodeSize.height, to.x + nodeSize.width / 2, to.y];
      const bend = Math.min(60, Math.max(12, (y2 - y1) / 2));
      edges.append(makeSvg("path", { d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`, "data-from": other, "data-to": one.number }));
    }
    boxes.append(
      makeSvg(
        "g",
        { class: `node ${familyOf(one.op)}`, transform: `translate(${to.x} ${to.y})`, "data-node": one.number },
        makeSvg("title", {}, `${one.name}: ${one.type}`),
        makeSvg("rect", { width: nodeSize.width, height: nodeSize.height, rx: 7 }),
        makeSvg("text", { x: 9, y: 14.5, class: "op" }, clipped(one.op, 19)),
        makeSvg("text", { x: 9, y: 27, class: "type" }, clipped(one.type, 24)),
      ),
    );
  }
  drawing.append(edges, boxes);
  box.replaceChildren(drawing);
  markChosen();
}

const clipped = (text: string, most: number) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function markChosen(): void {
  for (const box of byId("graph").querySelectorAll<SVGGElement>(".node")) {
    const one = nodes[Number(box.dataset["node"])]!;
    box.classList.toggle("in-kernel", kernel !== undefined && one.kernel === kernel);
    box.classList.toggle("chosen", one.number === node);
  }
  for (const edge of byId("graph").querySelectorAll<SVGPathElement>(".edges path"))
    edge.classList.toggle("near", edge.dataset["from"] === String(node) || edge.dataset["to"] === String(node));
  byId("graph").classList.toggle("has-kernel", kernel !== undefined);
  for (const row of byId("kernels").querySelectorAll<HTMLElement>("[data-kernel]")) row.classList.toggle("chosen", Number(row.dataset["kernel"]) === kernel);
}

function setZoom(to: number): void {
  const box = byId("graph");
  const [x, y] = [(box.scrollLeft + box.clientWidth / 2) / zoom, (box.scrollTop + box.clientHeight / 2) / zoom];
  zoom = Math.min(2, Math.max(0.12, to));
  const drawing = box.querySelector("svg");
  drawing?.setAttribute("width", String(layout.width * zoom));
  drawing?.setAttribute("height", String(layout.height * zoom));
  box.scrollTo(x * zoom - box.clientWidth / 2, y * zoom - box.clientHeight / 2);
}

// ---- kernels

const timeText = (milliseconds: number) => (milliseconds >= 1 ? `${milliseconds.toFixed(2)} ms` : `${Math.round(milliseconds * 1000)} µs`);

function drawKernels(): void {
  const measured = times.get(entry.name);
  const most = Math.max(1e-9, ...(measured?.milliseconds ?? []));
  byId("kernels").replaceChildren(
    ...entry.steps.map((step, number) => {
      const time = measured?.milliseconds[number];
      const bar = make("span", "time-bar");
      bar.style.setProperty("--part", `${time === undefined ? 0 : (100 * time) / most}%`);
      const ops = nodes.filter((one) => one.kernel === number).map((one) => one.op);
      const row = make(
        "button",
        "kernel",
        make("span", "kernel-number", String(number + 1)),
        make("span", "kernel-name", make("b", "", step.shader?.name ?? "copy"), make("span", "kernel-ops", ops.length > 0 ? ops.join(" · ") : step.label)),
        make("span", "kernel-time", time === undefined ? "" : timeText(time)),
        bar,
      );
      row.type = "button";
      row.dataset["kernel"] = String(number);
      row.onclick = () => chooseKernel(number);
      return row;
    }),
  );
  const total = measured?.milliseconds.reduce((a, b) => a + b, 0);
  byId("summary").textContent =
    `${nodes.length} ops become ${entry.steps.length} kernels, one submit` + (total === undefined ? "" : ` · ${timeText(total)} ${measured!.areTimestamps ? "by the device’s timestamps" : "by the wall clock, a submit for each kernel"}`);
}

function chooseKernel(number: number): void {
  kernel = kernel === number ? undefined : number;
  node = undefined;
  markChosen();
  showDetails();
  if (kernel === undefined) return;
  const first = nodes.find((one) => one.kernel === kernel);
  if (first === undefined) return;
  const { x, y } = layout.places[first.number]!;
  byId("graph").scrollTo({ left: x * zoom - byId("graph").clientWidth / 2 + 60, top: y * zoom - 80, behavior: "smooth" });
}

function chooseNode(number: number): void {
  node = number;
  kernel = nodes[number]!.kernel;
  markChosen();
  showDetails();
  const list = byId("kernels");
  const row = list.querySelector<HTMLElement>(".chosen");
  if (row !== null) list.scrollTo({ top: row.offsetTop - list.offsetTop - 40, behavior: "smooth" });
}

function fact(name: string, value: string): HTMLElement[] {
  return value === "" ? [] : [make("dt", "", name), make("dd", "", value)];
}

function showDetails(): void {
  const one = node === undefined ? undefined : nodes[node]!;
  const step = kernel === undefined ? undefined : entry.steps[kernel]!;
  byId("details").hidden = one === undefined && step === undefined;
  byId("details-title").textContent = one !== undefined ? `${one.op} → ${one.name}` : step !== undefined ? `Kernel ${kernel! + 1}: ${step.shader?.name ?? "copy"}` : "";
  const facts: HTMLElement[] = [];
  if (one !== undefined)
    facts.push(...fact("Result", one.type), ...fact("Attributes", one.attributes), ...fact("Parameters", one.leaves.join(", ")), ...fact("Written at", one.site), ...fact("Kernel", kernel === undefined ? "none: the compiler needs no kernel for it" : `${kernel + 1} of ${entry.steps.length}`));
  if (step !== undefined) {
    const list = (isWritten: boolean) => [...new Set(step.bindings.filter((binding) => binding.written === isWritten).map((binding) => entry.buffers[binding.buffer]!.name))].join(", ");
    const time = times.get(entry.name)?.milliseconds[kernel!];
    facts.push(
      ...fact("Computes", nodes.filter((other) => other.kernel === kernel).map((other) => other.op).join(" · ")),
      ...fact("Reads", list(false)),
      ...fact("Writes", list(true)),
      ...fact("Workgroups", `${step.workgroups.text}${step.shader === undefined ? "" : ` of ${step.shader.threads} threads`}`),
      ...fact("Time", time === undefined ? "" : timeText(time)),
    );
  }
  byId("facts").replaceChildren(...facts);
  byId("wgsl").replaceChildren(...(step?.shader === undefined ? [] : highlighted(step.shader.source)));
  byId("wgsl-box").hidden = step?.shader === undefined;
}

// ---- what the page does

function showEntry(name: string): void {
  entry = program.entries.find((one) => one.name === name)!;
  kernel = node = undefined;
  nodes = viewNodes(graphs[name]!, entry);
  layout = layOut(nodes);
  zoom = Math.min(1, Math.max(0.85, (byId("graph").clientWidth - 8) / layout.width));
  for (const tab of byId("entries").querySelectorAll("button")) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  byId("work").hidden = false;
  drawKernels();
  drawGraph();
  byId("graph").scrollTo((layout.width * zoom - byId("graph").clientWidth) / 2, 0);
  showDetails();
}

/** Returns whether the graph is shown, which it is not if something requested later can be opened. */
async function open(given: Readonly<Record<string, unknown>>, name: string, ticket: number): Promise<boolean> {
  if (Object.keys(given).length === 0) throw new UsageError(`${name} has no graphs`);
  for (const graph of Object.values(given) as Partial<TracedGraph>[])
    if (!Array.isArray(graph?.nodes) || !Array.isArray(graph.tensors)) throw new UsageError(`${name} has no graphs: it must be {"NAME": GRAPH, …}, each as to_json writes it`);
  if (!order.accept(ticket)) return false; // only now: a request that cannot be opened must not cancel others
  showBusy(`Compiling for ${describeAdapter(device).name}`);
  try {
    const compiler = await openCompiler();
    const began = performance.now();
    const bytes = await compiler.call("bytes", "jerboa_compile_graphs", JSON.stringify({ device: describeDevice(device), entries: given })).finally(() => compiler.close());
    const seconds = (performance.now() - began) / 1000;
    const loaded = await Program.load(device, bytes);
    if (order.isOutdated(ticket)) return false;
    showProgram(loaded, given as Readonly<Record<string, TracedGraph>>);
    showReady(`Compiled for this device in ${seconds.toFixed(1)} s, ${Math.round(bytes.length / 1000)} kB`);
    return true;
  } catch (error) {
    if (order.isOutdated(ticket)) return false;
    showReady("");
    throw error;
  }
}

function showProgram(loaded: Program, given: Readonly<Record<string, TracedGraph>>): void {
  program = loaded;
  for (const session of sessions.values()) session.destroy();
  sessions = new Map();
  times.clear();
  graphs = given;
  byId("entries").replaceChildren(
    ...program.entries.map(({ name: title }) => {
      const tab = make("button", "tab", title);
      tab.type = "button";
      tab.onclick = () => showEntry(title);
      return tab;
    }),
  );
  showEntry((program.entries.find(({ name: title }) => title === "decode") ?? program.entries[0]!).name);
}

/** Inputs of the largest size, filled with zeros. */
function exampleInputs(of: Entry, symbols: ReadonlyMap<string, number>): Record<string, Input> {
  return Object.fromEntries(
    of.inputs.map(({ name, dtype, shape }) => {
      const sizes = shape.map((dim) => dim.evaluate(symbols));
      const count = sizes.reduce((a, b) => a * b, 1);
      if (dtype !== "i32" && dtype !== "f32") throw new UsageError(`${of.name}: this page makes no inputs of type ${dtype}`);
      return [name, tensor(dtype === "i32" ? new Int32Array(count) : new Float32Array(count), sizes)];
    }),
  );
}

async function profile(): Promise<void> {
  const timed = entry;
  const of = program;
  byId<HTMLButtonElement>("profile").disabled = true;
  try {
    let session = sessions.get(timed.name);
    if (session === undefined) {
      showBusy(`Preparing ${new Set(timed.steps.map((step) => step.shader?.source)).size} kernels`);
      session = await of.createSession({ entries: [timed.name] });
      if (of !== program) return session.destroy(); // another program has been opened since
      sessions.set(timed.name, session);
    }
    showBusy(`Timing ${timed.name}`);
    const graph = graphs[timed.name] as TracedGraph & { readonly symbols?: Readonly<Record<string, number>> };
    const inputs = exampleInputs(timed, new Map(Object.entries(graph.symbols ?? {})));
    await session.profile(timed.name, inputs); // the first run includes work that the driver postpones
    const runs: StepTimes[] = [];
    for (let i = 0; i < profiledRuns; ++i) runs.push(await session.profile(timed.name, inputs));
    if (of !== program) return;
    times.set(timed.name, { areTimestamps: runs[0]!.areTimestamps, milliseconds: timed.steps.map((_, number) => runs.reduce((sum, { milliseconds }) => sum + milliseconds[number]!, 0) / profiledRuns) });
    showReady(`The mean of ${profiledRuns} runs`);
    if (timed === entry) {
      drawKernels();
      markChosen();
      showDetails();
    }
  } catch (error) {
    if (of !== program) return; // its session was destroyed
    showReady("");
    throw error;
  } finally {
    byId<HTMLButtonElement>("profile").disabled = false;
  }
}

async function graphsIn(file: File): Promise<Readonly<Record<string, unknown>>> {
  let given: unknown;
  try {
    given = JSON.parse(await file.text());
  } catch {
    throw new UsageError(`${file.name} is not valid JSON: this page shows graphs as to_json writes them`);
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) throw new UsageError(`${file.name} is not a graph: this page shows graphs as to_json writes them`);
  return "nodes" in given ? { graph: given } : (given as Record<string, unknown>);
}

async function take(files: readonly File[]): Promise<void> {
  const ticket = order.ask();
  const file = files[0]!;
  const isShown = await open(await graphsIn(file), file.name, ticket);
  if (isShown && order.isLatest(ticket)) hideProblem();
}

byId("graph").addEventListener("click", (event) => {
  const found = event.target instanceof Element ? event.target.closest<SVGGElement>(".node") : null;
  if (found !== null) chooseNode(Number(found.dataset["node"]));
});
byId("zoom-in").onclick = () => setZoom(zoom * 1.3);
byId("zoom-out").onclick = () => setZoom(zoom / 1.3);
byId("zoom-fit").onclick = () => setZoom(Math.min(byId("graph").clientWidth / layout.width, byId("graph").clientHeight / layout.height));
byId("profile").onclick = () => void guarded(profile());
byId<HTMLInputElement>("files").onchange = (event) => {
  const files = [...((event.target as HTMLInputElement).files ?? [])];
  if (files.length > 0) void guarded(take(files));
};
onGiven({ files: (files) => void guarded(take(files)) });

try {
  showBusy("Looking for WebGPU");
  device = await openDevice();
  showAdapter(describeAdapter(device));
  const ticket = order.ask();
  const response = await fetch(graphsAddress);
  if (response.ok) await open((await response.json()) as Record<string, unknown>, "graphs.json", ticket);
  else showReady("There are no graphs here: ./dev web exports some, or open a file that to_json wrote.");
} catch (error) {
  showReady("");
  showProblem(error);
}
