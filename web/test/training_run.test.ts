import assert from "node:assert/strict";
import { test } from "node:test";

import { smoothed } from "../page/loss_curve.js";
import { OpeningOrder } from "../page/opening_order.js";
import { type Trainee, checkSteps } from "../page/trainee.js";
import { type RunView, TrainingRun } from "../page/training_run.js";
import { FileError, tensor, writeSafetensors } from "../src/index.js";

// The page's training run, on a model without a device: its only parameter is the number of submitted steps.

class FakeTrainee {
  readonly batch = 1;
  readonly context = 4;
  readonly source = { name: "fake", fingerprint: "fake" };
  submitted = 0;
  readonly session = { save: async () => Uint8Array.of(this.submitted) };

  load(bytes: Uint8Array): void {
    if (bytes.length === 0) throw new Error("not a checkpoint");
    this.submitted = bytes[0]!;
  }
  async steps(): Promise<number> {
    return this.submitted;
  }
  async step() {
    ++this.submitted;
    await new Promise((resolve) => setTimeout(resolve, 1));
    return { loss: 1, rate: undefined };
  }
  async next() {
    return { byte: 97, probabilities: new Float32Array(256), from: 0, attention: [] };
  }
}

const view: RunView = { onStep: () => undefined, onText: () => undefined, onChoice: () => undefined, onSample: () => undefined, onSaved: () => undefined, prompt: () => "a" };
const text = new TextEncoder().encode("some text to learn from");

function begun(): { trainee: FakeTrainee; run: TrainingRun } {
  const trainee = new FakeTrainee();
  return { trainee, run: new TrainingRun(trainee as unknown as Trainee, "text", text, view, false) };
}

const until = async (isSo: () => boolean) => {
  for (const began = performance.now(); performance.now() - began < 60_000 && !isSo(); ) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.ok(isSo());
};

test("a running training is saved without a pause, on request and automatically", async () => {
  const { run } = begun();
  const training = run.start();
  await until(() => run.step >= 3);
  assert.ok((await run.checkpoint())[0]! >= 3);
  assert.ok(run.running);

  assert.equal(run.saved, undefined);
  run.requestSave();
  await until(() => run.saved !== undefined);
  assert.ok(run.running);
  assert.equal(run.saved!.checkpoint[0], run.saved!.losses.length, "losses are of the steps of the checkpoint");
  await until(() => run.step > run.saved!.losses.length);
  await run.stop();
  await training;
  assert.equal(run.saved!.losses.length, run.step, "what was done until the pause");

  run.losses.push(1);
  run.requestSave();
  await until(() => run.saved!.losses.length === run.step);
});

test("a checkpoint includes its step, and a refused one changes nothing", async () => {
  const { trainee, run } = begun();
  const from = (bytes: Uint8Array<ArrayBuffer>) => TrainingRun.fromCheckpoint(run.trainee, "text", text, view, false, bytes);
  const loaded = await from(Uint8Array.of(40));
  assert.equal(loaded.step, 40);
  const training = loaded.start();
  await until(() => loaded.step >= 42);
  await loaded.stop();
  await training;
  assert.equal(loaded.step, trainee.submitted);
  assert.deepEqual(loaded.losses.filter(Number.isFinite), new Array(loaded.step - 40).fill(1));
  await assert.rejects(from(new Uint8Array()), /not a checkpoint/);
});

test("a checkpoint whose step is out of range is refused", () => {
  const of = (step: number) => writeSafetensors(new Map([["jerboa.state/step", tensor(Float32Array.of(step), [])]]));
  for (const step of [0, 7, 1e7]) checkSteps(of(step));
  for (const step of [-1, 0.5, NaN, Infinity, 3e9]) assert.throws(() => checkSteps(of(step)), (error) => error instanceof FileError && /the checkpoint is of step/.test(error.message), String(step));
  checkSteps(writeSafetensors(new Map())); // parameters alone
});

test("the curve is drawn only where losses are known", () => {
  const losses = [...new Array<number>(50).fill(NaN), ...new Array<number>(50).fill(2)];
  const drawn = smoothed(losses);
  assert.ok(drawn.slice(0, 40).every(Number.isNaN));
  assert.ok(drawn.slice(60).every((value) => value === 2));
});

test("the last request that can be opened is shown", () => {
  const order = new OpeningOrder();
  const [slow, quick] = [order.ask(), order.ask()];
  assert.ok(order.accept(quick), "it is read first");
  assert.ok(order.isOutdated(slow) && !order.accept(slow));
  assert.ok(order.accept(quick) && order.isLatest(quick));
  const [good, refused] = [order.ask(), order.ask()];
  assert.ok(order.accept(good), "what cannot be opened leaves alone what can");
  assert.ok(!order.isLatest(good) && order.isLatest(refused), "whose problem is shown on");
});
