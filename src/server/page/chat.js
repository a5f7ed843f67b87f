import { showProblem, startChat } from "./chat_view.js";
import { settingNames } from "./settings.js";
import { store, stored } from "./storage.js";

// The chat page of the server: its models answer, over OpenAI's API.

const $ = (id) => document.getElementById(id);

let hasTools = false; // the server has tools, which it calls itself

const headers = () => {
  const { key } = stored("settings", {});
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
};

async function errorOf(answer) {
  if (answer.status === 401) return "The server needs an API key: enter it in the settings.";
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The server answered with status ${answer.status}.`;
  }
}

async function* events(answer) {
  let text = "";
  for await (const piece of readable(answer.body.pipeThrough(new TextDecoderStream()))) {
    text += piece;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const data = text.slice(0, end).replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

// Not every browser can iterate over a stream.
async function* readable(stream) {
  const reader = stream.getReader();
  try {
    for (let next; !(next = await reader.read()).done; ) yield next.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

function requestBody(messages, settings) {
  const body = { model: $("model").value, messages, stream: true, stream_options: { include_usage: true } };
  if (hasTools && settings.server_tools !== false) body.server_tools = true;
  for (const name of settingNames) if (name !== "system" && settings[name] !== undefined) body[name] = settings[name];
  return body;
}

async function* answer(messages, settings, signal) {
  const reply = await fetch("/v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(requestBody(messages, settings)), signal }).catch((error) => {
    throw error.message === "Failed to fetch" ? new Error("The server cannot be reached.") : error;
  });
  if (!reply.ok) throw new Error(await errorOf(reply));
  for await (const event of events(reply)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    const { content, reasoning_content, server_tool_calls: calls } = choice?.delta ?? {};
    const reasoning = calls?.map(shownCall).join("") ?? reasoning_content;
    yield { content, reasoning, tokens: event.usage?.completion_tokens, isCut: choice?.finish_reason === "length" };
  }
}

// Shows a call among the thoughts.
const shownCall = ({ name, arguments: given, output, error }) => `→ ${name} ${given}\n← ${error === null ? output : `error: ${error}`}\n`;

async function showModels() {
  try {
    const reply = await fetch("/v1/models", { headers: headers() });
    if (!reply.ok) throw new Error(await errorOf(reply));
    const chosen = $("model").value || stored("model", "");
    const { data, server_tools: tools } = await reply.json();
    hasTools = tools !== undefined;
    $("server_tools").parentElement.hidden = !hasTools;
    const names = data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
    showProblem("");
  } catch (error) {
    showProblem(error.message === "Failed to fetch" ? "The server cannot be reached." : error.message);
  }
}

// Shows the server's load while the page is visible.
async function showLive() {
  if (document.hidden) return;
  try {
    const reply = await fetch("/v1/metrics", { headers: headers() });
    if (!reply.ok) return;
    const model = (await reply.json()).models.find((one) => one.id === $("model").value);
    if (!model?.loaded) return void ($("live").textContent = "The model loads when it is first asked.");
    const hits = model.prompt_tokens_total ? (100 * model.prompt_tokens_reused_total) / model.prompt_tokens_total : 0;
    $("live").textContent = `${model.requests_unfinished} in progress · batch ${model.mean_batch.toFixed(1)} · ${hits.toFixed(0)} % of prompts cached`;
  } catch {
    $("live").textContent = "";
  }
}

$("model").addEventListener("change", () => store("model", $("model").value));
startChat({
  answer,
  maxTokens: "context",
  passwords: [{ name: "key", label: "API key" }],
  switches: [{ name: "server_tools", label: "Answers may use the server's tools" }],
  onSettings: (before) => {
    if (stored("settings", {}).key !== before.key) showModels();
  },
});
showModels().then(showLive);
setInterval(showLive, 2000);
