import { openDevice } from "../src/index.js";
import { LanguageModel, type LoadOptions, type LoadProgress } from "../src/language/language_model.js";
import { type CachedModel, clearCachedModels, listCachedModels, weightsAsStored } from "../src/language/model_cache.js";
import { describeAdapter, showAdapter } from "./adapter.js";
import { byId, make } from "./dom.js";
import { store, stored } from "./shared/storage.js";
import { sizeText } from "./texts.js";

// The panel in which a visitor chooses a model and follows its loading.

type Weights = NonNullable<LoadOptions["weights"]> | "";

/** The source of a model: a folder's URL, or files. */
interface Choice {
  readonly name: string;
  readonly files: string | readonly File[];
  readonly weights: Weights;
}

const addressField = byId<HTMLInputElement>("address");
const weightsField = byId<HTMLSelectElement>("weights");
const quickLosses = 3; // a device that is lost this often within a minute is not reopened

const phases: Readonly<Record<LoadProgress["phase"], string>> = {
  waiting: "Another page loads this model: waiting for it",
  files: "Reading its configuration",
  compiling: "Compiling it for this device",
  weights: "Loading its weights",
  ready: "Ready",
};

/** The last part of a URL, or the folder of files. */
function nameOf(files: string | readonly File[]): string {
  if (typeof files === "string") return files.split("/").filter(Boolean).at(-1) ?? files;
  return files.find((file) => file.webkitRelativePath !== "")?.webkitRelativePath.split("/")[0] ?? "The model";
}

/** The cache's name of a type of weights. */
const keptWeights = (weights: Weights) => (weights === "" ? weightsAsStored : weights);

const countText = (parameters: number) => (parameters >= 1e9 ? `${(parameters / 1e9).toFixed(1)} B` : `${(parameters / 1e6).toFixed(parameters < 1e7 ? 1 : 0)} M`);

export class ModelLoader {
  model: LanguageModel | undefined;
  private loaded: Choice | undefined; // the last one that became a model
  private loading: Choice | undefined;
  private control: AbortController | undefined;
  private device: GPUDevice | undefined;
  private readonly lossTimes: number[] = [];

  constructor(private readonly onChange: () => void) {
    byId<HTMLFormElement>("loader-form").onsubmit = (event) => {
      event.preventDefault();
      const address = addressField.value.trim();
      if (address !== "") void this.choose(address);
    };
    byId<HTMLInputElement>("folder").onchange = (event) => {
      const files = [...((event.target as HTMLInputElement).files ?? [])];
      if (files.length > 0) void this.choose(files);
    };
    byId("cancel-load").onclick = () => this.control?.abort();
    byId("choose-model").onclick = () => this.show(byId("loader").hidden === true);
    const { address, weights } = stored("model", { address: "", weights: "" }) as { address?: string; weights?: Weights };
    addressField.value = address ?? "";
    weightsField.value = weights ?? "";
  }

  /** Lists the available models, and loads the one of the last visit if it is in the browser's cache. */
  async begin(): Promise<void> {
    this.device = await this.open();
    await this.list();
    const isLast = ({ source, weights }: CachedModel) => source === addressOf(addressField.value) && weights === keptWeights(weightsField.value as Weights);
    const kept = (await listCachedModels()).find((one) => one.isComplete && isLast(one));
    if (kept !== undefined) await this.choose(addressField.value);
  }

  choose(files: string | readonly File[]): Promise<void> {
    return this.load({ name: nameOf(files), files, weights: weightsField.value as Weights });
  }

  private async open(): Promise<GPUDevice> {
    const device = await openDevice();
    showAdapter(describeAdapter(device));
    void device.lost.then(({ message }) => {
      if (this.device === device) void this.recover(message);
    });
    return device;
  }

  private async load(choice: Choice): Promise<void> {
    this.control?.abort();
    const control = (this.control = new AbortController());
    this.loading = choice;
    this.showState("loading", choice.name);
    try {
      this.device ??= await this.open();
      const { weights } = choice;
      const model = await LanguageModel.load(choice.files, {
        device: this.device,
        signal: control.signal,
        onProgress: (progress) => {
          if (this.control !== control) return; // another one has been chosen since
          if (progress.phase === "compiling") this.release(); // its files are fine, and it needs the memory
          this.showProgress(progress);
        },
        ...(weights === "" ? {} : { weights }),
      });
      if (control.signal.aborted) model.dispose();
      control.signal.throwIfAborted();
      this.model = model;
      this.loaded = choice;
      if (typeof choice.files === "string") store("model", { address: choice.files, weights });
      this.showState("choosing");
      this.showModel(choice.name, model);
      this.show(false);
      void this.list();
    } catch (error) {
      if (this.control !== control) return;
      this.showState("choosing");
      if (!control.signal.aborted) this.showError(`${choice.name} could not be loaded: ${(error as Error).message}`);
    } finally {
      if (this.control === control) this.loading = undefined;
      this.onChange();
    }
  }

  private release(): void {
    this.model?.dispose();
    this.model = undefined;
    this.onChange();
  }

  /**
   * All that was on the device is gone: loads the model again, or goes on with the one that was being loaded. The
   * conversations are not on the device.
   */
  private async recover(message: string): Promise<void> {
    const choice = this.loading ?? (this.model === undefined ? undefined : this.loaded);
    const now = performance.now();
    this.lossTimes.push(now);
    this.device = undefined;
    this.release();
    this.show(true);
    if (choice === undefined) return;
    if (this.lossTimes.filter((time) => now - time < 60_000).length > quickLosses) this.showError(`The graphics device is lost again and again${message === "" ? "" : `: ${message}`}. Reload the page to try once more.`);
    else await this.load(choice);
  }

  // ---- what the panel shows

  show(isShown: boolean): void {
    byId("loader").hidden = !isShown;
    byId("choose-model").setAttribute("aria-expanded", String(isShown));
  }

  private showState(state: "choosing" | "loading", name = ""): void {
    byId("loader").dataset["state"] = state;
    if (state === "choosing") {
      byId("choose-model").textContent = this.model === undefined ? "Choose a model" : this.loaded!.name;
      if (this.model === undefined) byId("model-facts").textContent = "";
      return;
    }
    this.show(true);
    this.showError("");
    byId("loading-name").textContent = name;
    byId("choose-model").textContent = `Loading ${name} …`;
    this.showProgress({ phase: "files", loaded: 0, total: 0 });
  }

  private showProgress({ phase, loaded, total }: LoadProgress): void {
    byId("loading-phase").textContent = total > 0 ? `${phases[phase]}: ${sizeText(loaded)} of ${sizeText(total)}` : `${phases[phase]} …`;
    const bar = byId<HTMLProgressElement>("loading-bar");
    if (total > 0) bar.value = loaded / total;
    else bar.removeAttribute("value");
  }

  private showModel(name: string, model: LanguageModel): void {
    byId("choose-model").title = `${name}: ${model.modelType}, ${countText(model.parameters)} parameters in ${model.weights}, ${sizeText(model.weightBytes)}, up to ${model.context.toLocaleString("en")} tokens`;
    byId("model-facts").textContent = `${countText(model.parameters)} parameters · ${model.weights} · ${sizeText(model.weightBytes)}${model.hasChatTemplate ? "" : " · continues texts: it was not trained to chat"}`;
  }

  private showError(text: string): void {
    byId("loader-problem").textContent = text;
    byId("loader-problem").hidden = text === "";
  }

  /** Lists the server's models and those in the browser's cache. */
  private async list(): Promise<void> {
    const [offered, kept] = await Promise.all([offeredModels(), listCachedModels()]);
    byId("offered").replaceChildren(...offered.map((name) => this.row(name, "", new URL(`../models/${name}/`, location.href).href)));
    byId("kept").replaceChildren(...kept.map((one) => this.keptRow(one)));
    byId("offered-box").hidden = offered.length === 0;
    byId("kept-box").hidden = kept.length === 0;
  }

  private row(name: string, note: string, address: string, weights?: Weights): HTMLElement {
    const made = make("button", "choice", make("b", "", name), make("span", "dim", note));
    made.type = "button";
    made.onclick = () => {
      addressField.value = address;
      if (weights !== undefined) weightsField.value = weights;
      void this.choose(address);
    };
    return make("li", "", made);
  }

  private keptRow({ source, weights, bytes, isComplete }: CachedModel): HTMLElement {
    const row = this.row(nameOf(source), `${weights} · ${sizeText(bytes)}${isComplete ? "" : " · not complete"}`, source, weights === weightsAsStored ? "" : (weights as Weights));
    const remove = make("button", "remove", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", `Remove ${nameOf(source)}, ${weights}, from this browser`);
    remove.onclick = () => void clearCachedModels(source, weights).then(() => this.list());
    row.append(remove);
    return row;
  }
}

function addressOf(text: string): string {
  try {
    const address = new URL(text, location.href).href;
    return address.endsWith("/") ? address : `${address}/`;
  } catch {
    return "";
  }
}

async function offeredModels(): Promise<string[]> {
  const response = await fetch("../models/index.json").catch(() => undefined);
  return response?.ok === true ? ((await response.json()) as string[]) : [];
}
