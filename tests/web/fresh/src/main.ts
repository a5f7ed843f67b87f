import { type Question, write } from "./write.js";

// index.html?model=ADDRESS&prompt=TEXT&tokens=COUNT&weights=TYPE&where=page|worker

const query = new URLSearchParams(location.search);
const text = document.querySelector("#text")!;
const state = document.querySelector("#state")!;
const question: Question = {
  model: new URL(query.get("model") ?? "", location.href).href,
  prompt: query.get("prompt") ?? "",
  tokens: Number(query.get("tokens") ?? 20),
  weights: (query.get("weights") as Question["weights"] | null) ?? undefined,
};
const show = ({ state: now, piece }: { state?: string; piece?: string }) => {
  if (now !== undefined) state.textContent = now;
  if (piece !== undefined) text.textContent += piece;
};

if (query.get("where") === "worker") {
  const worker = new Worker(new URL("./worker.ts", import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => show(data as { state?: string; piece?: string });
  worker.onerror = ({ message }) => show({ state: `failed: ${message}` });
  worker.postMessage(question);
} else
  write(question, (now) => show({ state: now }), (piece) => show({ piece })).then(
    () => show({ state: "done" }),
    (error: unknown) => show({ state: `failed: ${error}` }),
  );
