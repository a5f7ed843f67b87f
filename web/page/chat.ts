import { ModelLoader } from "./model_loader.js";
import { showProblem, startChat } from "./shared/chat_view.js";
import { onGiven } from "./texts.js";
import { ThoughtSplitter } from "./thoughts.js";
import { byId } from "./dom.js";

// The page that chats with a model on the visitor's device.

const defaultTokens = 1024;

const loader = new ModelLoader(() => {
  const isReady = loader.model !== undefined;
  byId<HTMLButtonElement>("send").disabled = !isReady;
  byId("status").textContent = isReady ? "Enter sends, Shift+Enter begins a new line." : "Choose a model to begin.";
});

interface Message {
  readonly role: string;
  readonly content: string;
}

async function* answer(messages: readonly Message[], settings: Readonly<Record<string, number | undefined>>, signal: AbortSignal) {
  const model = loader.model;
  if (model === undefined) throw new Error("Choose a model first.");
  const { temperature, top_p: topP, top_k: topK, min_p: minP, seed } = settings;
  const named = Object.entries({ temperature, topP, topK, minP, seed }).filter(([, value]) => value !== undefined);
  const options = { maxTokens: settings["max_tokens"] ?? defaultTokens, signal, ...(named.length === 0 ? {} : { sampling: Object.fromEntries(named) }) };
  const stream = model.hasChatTemplate ? model.answer(messages, options) : model.generate(messages.at(-1)!.content, options);
  const splitter = new ThoughtSplitter();
  for await (const piece of stream) yield splitter.push(piece);
  const { tokens, reason } = await stream.result;
  yield { ...splitter.finish(), tokens: tokens.length, isCut: reason === "length" || reason === "context" };
}

startChat({
  answer,
  maxTokens: String(defaultTokens),
  mayAsk: () => loader.model !== undefined,
  emptyText: "Ask something. The model runs on your device, and conversations stay in this browser.",
});
onGiven({ files: (files) => void loader.choose(files) });

try {
  await loader.begin();
} catch (error) {
  const { message } = error as Error;
  loader.show(true);
  showProblem(`${message.charAt(0).toUpperCase()}${message.slice(1)}.${navigator.gpu === undefined ? " WebGPU is in Chrome and Edge from 113, in Safari from 26, and in Firefox from 141 on Windows." : ""}`);
}
