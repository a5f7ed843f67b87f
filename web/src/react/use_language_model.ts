import { useCallback, useEffect, useRef, useState } from "react";

import { type ChatOptions, LanguageModel, type LoadOptions, type LoadProgress } from "../language/language_model.js";
import type { ModelFiles } from "../language/source.js";

export type LanguageModelStatus = "idle" | "loading" | "ready" | "writing" | "failed";

export interface LanguageModelHandle {
  readonly status: LanguageModelStatus;
  /** While it is loading. */
  readonly progress: LoadProgress | undefined;
  readonly error: Error | undefined;
  readonly model: LanguageModel | undefined;
  /** The answer as far as it is written. */
  readonly text: string;
  /** Asks the model; resolves to the whole answer, or to what there is of it when `stop` is called. */
  readonly chat: (message: string, options?: ChatOptions) => Promise<string>;
  readonly stop: () => void;
}

export interface UseLanguageModelOptions extends Omit<LoadOptions, "onProgress" | "signal"> {
  /** How a model is loaded; by default LanguageModel.load. */
  readonly load?: (files: ModelFiles, options: LoadOptions) => Promise<LanguageModel>;
}

/**
 * A language model for the life of a component, which renders again as the model loads and writes.
 *
 *     const { status, progress, text, chat } = useLanguageModel("https://…/SmolLM2-135M-Instruct/", { weights: "int4" });
 *
 * `files` decides which model: another one is loaded when it changes, and none while it is undefined. The model before is
 * disposed of then, as it is when the component goes away.
 */
export function useLanguageModel(files: ModelFiles | undefined, options: UseLanguageModelOptions = {}): LanguageModelHandle {
  const [status, setStatus] = useState<LanguageModelStatus>(files === undefined ? "idle" : "loading");
  const [progress, setProgress] = useState<LoadProgress>();
  const [error, setError] = useState<Error>();
  const [model, setModel] = useState<LanguageModel>();
  const [text, setText] = useState("");
  const latestOptions = useRef(options);
  useEffect(() => {
    latestOptions.current = options;
  });
  const writing = useRef<AbortController>(undefined);

  useEffect(() => {
    setModel(undefined);
    setError(undefined);
    setProgress(undefined);
    setText("");
    setStatus(files === undefined ? "idle" : "loading");
    if (files === undefined) return;
    const { load = LanguageModel.load.bind(LanguageModel), ...rest } = latestOptions.current;
    const loading = new AbortController();
    let made: LanguageModel | undefined;
    const onProgress = (now: LoadProgress) => {
      if (!loading.signal.aborted) setProgress(now);
    };
    load(files, { ...rest, onProgress, signal: loading.signal }).then(
      (loaded) => {
        if (loading.signal.aborted) return loaded.dispose();
        made = loaded;
        setModel(loaded);
        setStatus("ready");
      },
      (reason: unknown) => {
        if (loading.signal.aborted) return;
        setError(asError(reason));
        setStatus("failed");
      },
    );
    return () => {
      loading.abort();
      writing.current?.abort();
      made?.dispose();
    };
  }, [files]);

  const chat = useCallback(
    async (message: string, chatOptions: ChatOptions = {}) => {
      if (model === undefined) return "";
      writing.current?.abort();
      const own = new AbortController();
      writing.current = own;
      chatOptions.signal?.addEventListener("abort", () => own.abort(), { once: true });
      let written = "";
      const isCurrent = () => writing.current === own;
      setText("");
      setError(undefined);
      setStatus("writing");
      try {
        for await (const piece of model.chat(message, { ...chatOptions, signal: own.signal })) {
          written += piece;
          if (isCurrent()) setText(written);
        }
      } catch (reason) {
        if (!own.signal.aborted) {
          if (isCurrent()) setError(asError(reason));
          throw reason;
        }
      } finally {
        if (isCurrent()) setStatus("ready");
      }
      return written;
    },
    [model],
  );
  const stop = useCallback(() => writing.current?.abort(), []);

  return { status, progress, error, model, text, chat, stop };
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
