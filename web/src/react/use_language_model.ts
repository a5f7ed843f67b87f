import { useCallback, useEffect, useRef, useState } from "react";

import { type ChatOptions, LanguageModel, type LoadOptions, type LoadProgress } from "../language/language_model.js";
import { FileSource, type ModelFiles, UrlSource } from "../language/source.js";

export type LanguageModelStatus = "idle" | "loading" | "ready" | "writing" | "failed";

export interface LanguageModelHandle {
  readonly status: LanguageModelStatus;
  /** While the model is loading. */
  readonly progress: LoadProgress | undefined;
  readonly error: Error | undefined;
  readonly model: LanguageModel | undefined;
  /** The answer so far. */
  readonly text: string;
  /** Asks the model; resolves to the whole answer or, after `stop`, to the part so far. */
  readonly chat: (message: string, options?: ChatOptions) => Promise<string>;
  readonly stop: () => void;
}

export interface UseLanguageModelOptions extends Omit<LoadOptions, "onProgress" | "signal"> {
  /** Loads the model; by default LanguageModel.load. */
  readonly load?: (files: ModelFiles, options: LoadOptions) => Promise<LanguageModel>;
}

/**
 * A language model for the life of a component, which renders again as the model loads and writes.
 *
 *     const { status, progress, text, chat } = useLanguageModel("https://…/SmolLM2-135M-Instruct/", { weights: "int4" });
 *
 * `files` decides which model, and the options how it is loaded: another one is loaded when they change, and none while
 * `files` is undefined. What is made anew in every render is the same if it has the same contents: an address, files, and
 * sources of this package; a source of your own must be the same object. `compiler` and `load` are those of the render in
 * which loading begins, and changing them alone loads nothing. The model before is disposed of when another one is loaded,
 * and when the component goes away.
 */
export function useLanguageModel(files: ModelFiles | undefined, options: UseLanguageModelOptions = {}): LanguageModelHandle {
  const [status, setStatus] = useState<LanguageModelStatus>(files === undefined ? "idle" : "loading");
  const [progress, setProgress] = useState<LoadProgress>();
  const [error, setError] = useState<Error>();
  const [model, setModel] = useState<LanguageModel>();
  const [text, setText] = useState("");
  const same = useSame(files);
  const { weights, context, sequences, cacheType, deviceSampling, device, gpu, cache } = options;
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
    setStatus(same === undefined ? "idle" : "loading");
    if (same === undefined) return;
    const { load = LanguageModel.load.bind(LanguageModel), ...rest } = latestOptions.current;
    const loading = new AbortController();
    let made: LanguageModel | undefined;
    const onProgress = (now: LoadProgress) => {
      if (!loading.signal.aborted) setProgress(now);
    };
    load(same, { ...rest, onProgress, signal: loading.signal }).then(
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
  }, [same, weights, context, sequences, cacheType, deviceSampling, device, gpu, cache]);

  const chat = useCallback(
    async (message: string, chatOptions: ChatOptions = {}) => {
      if (model === undefined) return "";
      writing.current?.abort();
      const controller = new AbortController();
      writing.current = controller;
      chatOptions.signal?.addEventListener("abort", () => controller.abort(), { once: true });
      let written = "";
      const isCurrent = () => writing.current === controller;
      setText("");
      setError(undefined);
      setStatus("writing");
      try {
        for await (const piece of model.chat(message, { ...chatOptions, signal: controller.signal })) {
          written += piece;
          if (isCurrent()) setText(written);
        }
      } catch (reason) {
        if (!controller.signal.aborted) {
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

/**
 * The first of the values so far that denote the same files. State instead of a ref would cause an extra render each
 * time.
 */
function useSame(files: ModelFiles | undefined): ModelFiles | undefined {
  const first = useRef(files);
  if (!isSame(first.current, files)) first.current = files;
  return first.current;
}

/** Whether two values denote the same files. */
function isSame(a: ModelFiles | undefined, b: ModelFiles | undefined): boolean {
  if (a === b) return true;
  const [first, second] = [contentsOf(a), contentsOf(b)];
  return first !== undefined && first.length === second?.length && first.every((one, i) => one === second[i]);
}

/** The contents of a URL, files or a source; undefined for values that are only equal to themselves. */
function contentsOf(files: ModelFiles | undefined): readonly unknown[] | undefined {
  if (typeof files === "string" || files instanceof URL) return [String(files)];
  if (files instanceof UrlSource) return [files.name];
  if (files instanceof FileSource) return [...files.files].flat();
  if (files instanceof Map) return [...files].flat();
  // Other iterables, such as generators, may allow only one iteration.
  const isList = files instanceof Set || (typeof files === "object" && files !== null && "length" in files);
  return isList ? [...(files as Iterable<File>)] : undefined;
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
