import { useCallback, useEffect, useRef, useState } from "react";

import type { Batch, Inputs, Trainer } from "../graph/index.js";

export type TrainerStatus = "loading" | "ready" | "training" | "failed";

export interface TrainerState {
  readonly status: TrainerStatus;
  /** Updates so far. */
  readonly step: number;
  /** The loss of the last step; undefined before the first. */
  readonly loss: number | undefined;
  /** The reason of the status "failed". */
  readonly error: Error | undefined;
}

export interface TrainerHandle<M extends object, I extends Inputs> extends TrainerState {
  /** Undefined while it is loading. */
  readonly trainer: Trainer<M, I> | undefined;
  /** Trains until `pause` is called. */
  readonly train: () => void;
  readonly pause: () => void;
  /** Pauses, and resets to initial values. */
  readonly reset: () => Promise<void>;
}

const beginning: TrainerState = { status: "loading", step: 0, loss: undefined, error: undefined };

/**
 * A Trainer for the life of a component, which renders again after every step.
 *
 *     const { status, step, loss, train, pause } = useTrainer(() => Trainer.create(new Gpt(), nextTokenLoss), (step) => text.batch(step));
 *
 * `create` runs once, and again when one of the dependencies changes; the trainer before is destroyed then, as it is when
 * the component goes away.
 */
export function useTrainer<M extends object, I extends Inputs = Inputs>(
  create: () => Promise<Trainer<M, I>>,
  batch: (step: number) => Batch,
  dependencies: readonly unknown[] = [],
): TrainerHandle<M, I> {
  const [state, setState] = useState(beginning);
  const [trainer, setTrainer] = useState<Trainer<M, I>>();
  const run = useRef<{ isRunning: boolean; work: Promise<void> }>({ isRunning: false, work: Promise.resolve() });
  const latestBatch = useRef(batch);
  useEffect(() => {
    latestBatch.current = batch;
  });

  useEffect(() => {
    const thisRun = { isRunning: false, work: Promise.resolve() };
    run.current = thisRun;
    let isGone = false;
    let made: Trainer<M, I> | undefined;
    setState(beginning);
    setTrainer(undefined);
    const report = (error: unknown) => {
      if (!isGone) setState((before) => ({ ...before, status: "failed", error: error instanceof Error ? error : new Error(String(error)) }));
    };
    create().then((created) => {
      made = created;
      if (isGone) return created.destroy();
      setTrainer(created);
      setState({ ...beginning, status: "ready", step: created.steps });
    }, report);
    return () => {
      isGone = true;
      thisRun.isRunning = false;
      void thisRun.work.finally(() => made?.destroy());
    };
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the caller says when to create another one
  }, dependencies);

  const train = useCallback(() => {
    const thisRun = run.current;
    if (trainer === undefined || thisRun.isRunning) return;
    thisRun.isRunning = true;
    setState((before) => ({ ...before, status: "training", error: undefined }));
    const loop = async () => {
      while (thisRun.isRunning) {
        const result = await trainer.step(latestBatch.current(trainer.steps));
        const loss = await result.loss();
        if (run.current === thisRun) setState((before) => ({ ...before, step: result.step, loss }));
      }
    };
    thisRun.work = thisRun.work.then(loop).then(
      () => run.current === thisRun && setState((before) => ({ ...before, status: "ready" })),
      (error: unknown) => {
        thisRun.isRunning = false;
        if (run.current === thisRun) setState((before) => ({ ...before, status: "failed", error: error instanceof Error ? error : new Error(String(error)) }));
      },
    ) as Promise<void>;
  }, [trainer]);

  const pause = useCallback(() => {
    run.current.isRunning = false;
  }, []);

  const reset = useCallback(async () => {
    const thisRun = run.current;
    thisRun.isRunning = false;
    await thisRun.work;
    await trainer?.reset();
    if (run.current === thisRun && trainer !== undefined) setState({ ...beginning, status: "ready" });
  }, [trainer]);

  return { ...state, trainer, train, pause, reset };
}
