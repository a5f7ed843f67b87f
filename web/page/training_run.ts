import { TextData, UsageError } from "../src/index.js";
import { type Sample, type SavedRun, saveRun } from "./autosave.js";
import type { Choice, StepResult, Trainee } from "./trainee.js";

// The training of a model on a text: steps, samples generated between them, and autosaves.

export interface RunView {
  /** Called after a step, and when the run begins. */
  onStep(run: TrainingRun, rate: number | undefined, bytesPerSecond: number | undefined): void;
  /** Called when generation starts after these bytes. */
  onText(prompt: readonly number[]): void;
  onChoice(choice: Choice): void;
  onSample(run: TrainingRun): void;
  /** Undefined if the browser has no room; saving is not tried again then. */
  onSaved(savedAt: number | undefined): void;
  prompt(): string;
}

const stepsUnderWay = 3; // submitted before the first of them is read, so that the device is never idle
const bytesPerSample = 160;
const leastBytesPerSample = 16;
const millisecondsPerSample = 2500; // a slow device generates less
const maxSamples = 48;
const leastMillisecondsBetweenSamples = 1500;
const trainingPerWriting = 4; // generation takes at most a fifth of the time
const millisecondsBetweenSaves = 15_000;

export class TrainingRun {
  running = false;
  /** Stays true while pending work is finished and saved after a pause. */
  isTraining = false;
  losses: number[] = [];
  samples: Sample[] = [];
  saved: SavedRun | undefined;
  private closed = false;
  private work: Promise<void> = Promise.resolve();
  private readonly data: TextData;
  private wroteAt = -Infinity;
  private wroteFor = 0;
  private savedAt = performance.now();
  private isSaveAsked = false;

  constructor(
    readonly trainee: Trainee,
    readonly textName: string,
    readonly text: Uint8Array<ArrayBuffer>,
    private readonly view: RunView,
    /** Whether the browser saves the run. */
    private isKept: boolean,
    saved?: SavedRun,
  ) {
    this.data = new TextData(text, { batch: trainee.batch, length: trainee.context });
    if (saved === undefined) return;
    trainee.load(saved.checkpoint);
    this.losses = [...saved.losses];
    this.samples = [...saved.samples];
    this.saved = saved;
  }

  /** Continues from a checkpoint of another run. */
  static async fromCheckpoint(trainee: Trainee, textName: string, text: Uint8Array<ArrayBuffer>, view: RunView, isKept: boolean, checkpoint: Uint8Array<ArrayBuffer>): Promise<TrainingRun> {
    const run = new TrainingRun(trainee, textName, text, view, isKept);
    trainee.load(checkpoint);
    await run.takeSteps();
    return run;
  }

  /** Counts the steps that the model had made before this run. Their losses are unknown. */
  async takeSteps(): Promise<void> {
    this.losses = new Array<number>(await this.trainee.steps()).fill(NaN);
  }

  get step(): number {
    return this.losses.length;
  }

  start(): Promise<void> {
    this.running = this.isTraining = true;
    return this.inTurn(() => this.train()).finally(() => (this.running = this.isTraining = false));
  }

  pause(): void {
    this.running = false;
  }

  /** Generates a sample, between other work. */
  write(): Promise<void> {
    return this.inTurn(() => this.writeText(() => !this.closed));
  }

  /** Pauses, and waits for pending steps. */
  async stop(): Promise<void> {
    this.running = false;
    await this.work.catch(() => undefined);
  }

  /** The same, and stops showing and saving anything. */
  async close(): Promise<void> {
    this.closed = true;
    await this.stop();
  }

  /** Saves the run soon: between steps if it is training. */
  requestSave(): void {
    if (this.step === 0) return;
    if (this.running) this.isSaveAsked = true;
    else void this.inTurn(() => this.saveNow()).catch(() => undefined);
  }

  /** A checkpoint after all submitted steps. A session's save is a snapshot, so training can continue meanwhile. */
  checkpoint(): Promise<Uint8Array<ArrayBuffer>> {
    return this.trainee.session.save();
  }

  // Runs one task at a time, in order. A failure does not keep the next one from running.
  private inTurn<T>(body: () => Promise<T>): Promise<T> {
    const next = this.work.then(body);
    this.work = next.then(
      () => undefined,
      () => undefined,
    );
    return next;
  }

  private async train(): Promise<void> {
    if (this.step === 0 && this.samples.length === 0) await this.writeText(() => this.running);
    let began = performance.now();
    let counted = 0;
    const underWay: Promise<StepResult>[] = [];
    const finish = async () => {
      const { loss, rate } = await underWay.shift()!;
      if (this.closed) return;
      this.losses.push(loss);
      const seconds = (performance.now() - began) / 1000;
      this.view.onStep(this, rate, (++counted * this.trainee.batch * this.trainee.context) / seconds);
      if (!Number.isFinite(loss)) throw new UsageError(`the loss became ${loss} at step ${this.step}: start over`);
    };
    while (this.running) {
      const result = this.trainee.step(this.data.batch(this.step + underWay.length));
      result.catch(() => undefined);
      underWay.push(result);
      if (underWay.length >= stepsUnderWay) await finish();
      const isSampleDue = this.isSampleDue(this.step + underWay.length);
      const isSaveDue = this.isSaveAsked || performance.now() - this.savedAt > millisecondsBetweenSaves;
      if (!this.running || !(isSampleDue || isSaveDue)) continue;
      while (underWay.length > 0) await finish();
      if (isSaveDue) await this.saveNow();
      if (isSampleDue) await this.writeText(() => this.running && !this.isSaveAsked);
      began = performance.now();
      counted = 0;
    }
    while (underWay.length > 0) await finish();
    await this.saveNow();
  }

  private isSampleDue(step: number): boolean {
    const last = this.samples.at(-1)?.step ?? -1;
    if (last <= 0) return step > last;
    return performance.now() - this.wroteAt > Math.max(leastMillisecondsBetweenSamples, trainingPerWriting * this.wroteFor);
  }

  /** Continues the prompt while `goesOn` returns true. */
  private async writeText(goesOn: () => boolean): Promise<void> {
    const prompt = this.view.prompt() || "\n";
    const bytes = [...new TextEncoder().encode(prompt)];
    const start = bytes.length;
    const began = performance.now();
    if (!this.closed) this.view.onText(bytes);
    const isTooSlow = () => bytes.length >= start + leastBytesPerSample && performance.now() - began > millisecondsPerSample;
    while (bytes.length < start + bytesPerSample && goesOn() && !isTooSlow()) {
      const choice = await this.trainee.next(bytes);
      bytes.push(choice.byte);
      if (this.closed) return;
      this.view.onChoice(choice);
    }
    this.wroteAt = performance.now();
    this.wroteFor = this.wroteAt - began;
    const text = new TextDecoder().decode(Uint8Array.from(bytes.slice(start)));
    const sample = { step: this.step, loss: this.losses.at(-1) ?? NaN, prompt, text };
    this.samples = thinned([...this.samples.filter((one) => one.step !== sample.step), sample]);
    this.view.onSample(this);
  }

  private async saveNow(): Promise<void> {
    this.savedAt = performance.now();
    this.isSaveAsked = false;
    if (this.closed || this.step === 0) return;
    const { losses, samples, text, textName } = this;
    const run = { model: this.trainee.source.fingerprint, textName, text, losses: [...losses], samples: [...samples], checkpoint: await this.trainee.session.save(), savedAt: Date.now() };
    if (this.closed) return;
    this.saved = run;
    if (!this.isKept) return;
    try {
      await saveRun(run);
      this.view.onSaved(run.savedAt);
    } catch {
      this.isKept = false;
      this.view.onSaved(undefined);
    }
  }
}

/** Drops every second of the older samples when there are too many. */
function thinned(samples: Sample[]): Sample[] {
  if (samples.length <= maxSamples) return samples;
  return samples.filter((_, i) => i >= samples.length - 8 || i % 2 === 0);
}
