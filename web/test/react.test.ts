import assert from "node:assert/strict";
import { test } from "node:test";

import { type ReactElement, StrictMode, createElement } from "react";
import { type ReactTestRenderer, act, create } from "react-test-renderer";

import { UsageError } from "../src/errors.js";
import type { Batch, Trainer } from "../src/graph/index.js";
import type { LanguageModel, LoadOptions, LoadProgress } from "../src/language/language_model.js";
import { FileSource, UrlSource } from "../src/language/source.js";
import { type LanguageModelHandle, type TrainerHandle, useLanguageModel, useTrainer } from "../src/react/index.js";

(globalThis as { IS_REACT_ACT_ENVIRONMENT?: boolean }).IS_REACT_ACT_ENVIRONMENT = true;

type FakeModel = Record<string, never>;

/** A trainer without a device: its loss is 1 / step. */
class FakeTrainer {
  steps = 0;
  isDestroyed = false;
  batches: number[] = [];

  async step(batch: Batch) {
    assert.ok(!this.isDestroyed);
    this.batches.push(batch["x"]!.data[0]!);
    const step = ++this.steps;
    if (step === 100) throw new Error("the device is lost");
    await new Promise((resolve) => setTimeout(resolve, 1));
    return { step, loss: async () => 1 / step };
  }
  async reset() {
    this.steps = 0;
  }
  destroy() {
    this.isDestroyed = true;
  }
}

const batchOf = (step: number): Batch => ({ x: { dtype: "i32", shape: [1], data: Int32Array.of(step) } });

/** Lets the page run until a condition holds; a test that waits in vain ends at its time limit. */
async function until(isSo: () => boolean): Promise<void> {
  for (const began = performance.now(); performance.now() - began < 60_000 && !isSo(); ) await act(() => new Promise<void>((resolve) => setTimeout(resolve, 1)));
  assert.ok(isSo());
}

test("useTrainer trains until it is paused, and leaves nothing behind", async () => {
  const made: FakeTrainer[] = [];
  let handle!: TrainerHandle<FakeModel, never>;
  function Page({ seed }: { seed: number }): ReactElement | null {
    const create = async () => {
      const trainer = new FakeTrainer();
      made.push(trainer);
      return trainer as unknown as Trainer<FakeModel, never>;
    };
    handle = useTrainer<FakeModel, never>(create, batchOf, [seed]);
    return null;
  }
  const page = (seed: number) => createElement(StrictMode, null, createElement(Page, { seed }));
  let root!: ReactTestRenderer;
  await act(() => {
    root = create(page(1));
  });
  await until(() => handle.status === "ready");
  const [current] = made.slice(-1);
  assert.deepEqual(made.map((trainer) => trainer.isDestroyed), made.map((trainer) => trainer !== current)); // StrictMode mounts twice

  await act(() => handle.train());
  assert.equal(handle.status, "training");
  await until(() => handle.step > 2);
  await act(() => handle.pause());
  await until(() => handle.status === "ready");
  const { steps } = current!;
  assert.equal(handle.step, steps);
  assert.equal(handle.loss, 1 / steps);
  assert.deepEqual(current!.batches, Array.from({ length: steps }, (_, i) => i));

  await act(() => handle.reset());
  assert.deepEqual([handle.step, handle.loss], [0, undefined]);
  await act(() => handle.train());
  await until(() => handle.step > 0);
  await act(() => root.update(page(2)));
  await until(() => current!.isDestroyed && handle.status === "ready");
  assert.equal(handle.step, 0);

  made.at(-1)!.steps = 98;
  await act(() => handle.train());
  await until(() => handle.status === "failed");
  assert.equal(handle.error?.message, "the device is lost");
  await act(() => root.unmount());
  await until(() => made.every((trainer) => trainer.isDestroyed));
});

test("useTrainer reports why a trainer cannot be created", async () => {
  let handle!: TrainerHandle<FakeModel, never>;
  function Page(): null {
    handle = useTrainer<FakeModel, never>(() => Promise.reject(new Error("this browser has no WebGPU")), batchOf);
    return null;
  }
  await act(() => void create(createElement(Page)));
  await until(() => handle.status === "failed");
  assert.equal(handle.error?.message, "this browser has no WebGPU");
});

test("useLanguageModel loads, writes and stops", async () => {
  const disposed: string[] = [];
  let finish!: () => void;
  const fetched = new Promise<void>((resolve) => (finish = resolve));
  const load = async (files: unknown, options: LoadOptions) => {
    options.onProgress?.({ stage: "weights", loaded: 1, total: 2 } as unknown as LoadProgress);
    await fetched;
    if (files === "missing/") throw new Error("missing/: the server answers 404");
    return {
      async *chat(message: string, { signal }: { signal: AbortSignal }) {
        for (let i = 0; message !== "forever" ? i < 3 : !signal.aborted; ++i) {
          await new Promise((resolve) => setTimeout(resolve, 1));
          yield `${i} `;
        }
      },
      dispose: () => disposed.push(files as string),
    } as unknown as LanguageModel;
  };
  let handle!: LanguageModelHandle;
  const seen = new Set<unknown>();
  function Page({ files }: { files: string | undefined }): null {
    handle = useLanguageModel(files, { load });
    if (handle.progress !== undefined) seen.add((handle.progress as { loaded: number }).loaded);
    return null;
  }
  let root!: ReactTestRenderer;
  await act(() => {
    root = create(createElement(Page, { files: undefined }));
  });
  assert.equal(handle.status, "idle");
  assert.equal(await handle.chat("too early"), "");
  await act(() => root.update(createElement(Page, { files: "one/" })));
  assert.equal(handle.status, "loading");
  finish();
  await until(() => handle.status === "ready");
  assert.deepEqual([...seen], [1]);
  let answer = "";
  await act(async () => {
    answer = await handle.chat("count");
  });
  assert.deepEqual([answer, handle.text, handle.status], ["0 1 2 ", "0 1 2 ", "ready"]);
  let endless!: Promise<string>;
  await act(() => {
    endless = handle.chat("forever");
  });
  await until(() => handle.text.length > 4);
  assert.equal(handle.status, "writing");
  await act(async () => {
    handle.stop();
    await endless;
  });
  assert.equal(handle.status, "ready");
  await act(() => root.update(createElement(Page, { files: "missing/" })));
  await until(() => handle.status === "failed");
  assert.match(handle.error!.message, /404/);
  assert.deepEqual(disposed, ["one/"]);
  await act(() => root.unmount());
});

test("useLanguageModel reports that null is not a model", async () => {
  let handle!: LanguageModelHandle;
  function Page({ files }: { files: unknown }): null {
    handle = useLanguageModel(files as string);
    return null;
  }
  let root!: ReactTestRenderer;
  await act(() => {
    root = create(createElement(Page, { files: [new File([], "config.json")] }));
  });
  await act(() => root.update(createElement(Page, { files: null })));
  await until(() => handle.status === "failed" && /not null/.test(handle.error!.message));
  assert.ok(handle.error instanceof UsageError);
  await act(() => root.unmount());
});

test("useLanguageModel loads again when files or options change, but not when equal ones are created anew", async () => {
  const loads: string[] = [];
  const load = async (files: unknown, { weights }: LoadOptions) => {
    loads.push(`${String(files)} ${weights}`);
    return { dispose: () => undefined } as unknown as LanguageModel;
  };
  let handle!: LanguageModelHandle;
  function Page({ files, weights }: { files: unknown; weights: "f32" | "int4" }): null {
    handle = useLanguageModel(files as string, { load, weights });
    return null;
  }
  const file = new File([], "config.json");
  let root!: ReactTestRenderer;
  const render = async (files: unknown, weights: "f32" | "int4" = "f32") => {
    await act(() => {
      if (root === undefined) root = create(createElement(Page, { files, weights }));
      else root.update(createElement(Page, { files, weights }));
    });
    await until(() => handle.status === "ready");
  };
  for (let i = 0; i < 3; ++i) await render(new URL("https://models.test/one/"));
  assert.equal(loads.length, 1);
  for (let i = 0; i < 3; ++i) await render([file]);
  assert.equal(loads.length, 2);
  await render([new File([], "config.json")]);
  assert.equal(loads.length, 3);
  for (let i = 0; i < 3; ++i) await render("https://models.test/one/", "int4");
  assert.equal(loads.at(-1), "https://models.test/one/ int4");
  await render("https://models.test/one/", "f32");
  assert.equal(loads.length, 5);
  await act(() => root.unmount());
});

test("useLanguageModel loads a source that is created anew in every render only once", async () => {
  const file = new File([], "config.json");
  const sources = [() => new UrlSource("https://models.test/one/"), () => new FileSource([file]), () => new Set([file])];
  for (const make of sources) {
    let loads = 0;
    const load = async () => (++loads, { dispose: () => undefined } as unknown as LanguageModel);
    let handle!: LanguageModelHandle;
    let renders = 0;
    function Page(): null {
      ++renders;
      handle = useLanguageModel(make(), { load });
      return null;
    }
    let root!: ReactTestRenderer;
    await act(() => {
      root = create(createElement(Page));
    });
    await until(() => handle.status === "ready");
    for (let i = 0; i < 3; ++i) await act(() => root.update(createElement(Page)));
    assert.equal(loads, 1, String(make));
    assert.ok(renders < 12, `${renders} renders`);
    await act(() => root.unmount());
  }
});
