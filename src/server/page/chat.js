import { markdown } from "./markdown.js";

const $ = (id) => document.getElementById(id);

// ---- what is kept in the browser

const stored = (key, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem(`jerboa.${key}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const store = (key, value) => {
  try {
    localStorage.setItem(`jerboa.${key}`, JSON.stringify(value));
  } catch {
    showProblem("This browser has no room for more conversations; delete some to keep new ones.");
  }
};

const settingNames = ["system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
let settings = stored("settings", {});
let conversations = stored("conversations", []); // { id, title, messages: [{ role, content, reasoning, speed }] }
let current = conversations[0]?.id;
let answering; // an AbortController while an answer arrives

const conversation = () => conversations.find((one) => one.id === current);
const save = () => store("conversations", conversations);

// ---- the page

function showProblem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

function button(label, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = label;
  made.addEventListener("click", action);
  return made;
}

function showConversations() {
  $("conversations").replaceChildren(
    ...conversations.map((one) => {
      const row = document.createElement("li");
      row.classList.toggle("current", one.id === current);
      const title = button(one.title, () => choose(one.id));
      title.className = "title";
      const remove = button("×", () => removeConversation(one.id));
      remove.className = "remove";
      remove.setAttribute("aria-label", `Delete ${one.title}`);
      row.append(title, remove);
      return row;
    }),
  );
}

function fillMessage(node, message, isLast) {
  const body = document.createElement("div");
  body.className = "body";
  const parts = [];
  if (message.role === "user") body.textContent = message.content;
  else {
    if (message.reasoning) {
      const thoughts = document.createElement("details");
      thoughts.className = "thoughts";
      thoughts.open = !message.content && isLast;
      const summary = document.createElement("summary");
      summary.textContent = message.content ? "Thoughts" : "Thinking …";
      const text = document.createElement("p");
      text.textContent = message.reasoning;
      thoughts.append(summary, text);
      parts.push(thoughts);
    }
    body.append(...markdown(message.content));
    const isArriving = isLast && answering !== undefined;
    if (isArriving) (body.lastElementChild ?? body).classList.add("cursor");
  }
  const actions = document.createElement("div");
  actions.className = "actions";
  if (!(isLast && answering)) {
    actions.append(button("Copy", () => navigator.clipboard.writeText(message.content)));
    if (message.role === "user") actions.append(button("Edit", () => edit(message)));
    else if (isLast) actions.append(button("Regenerate", () => regenerate()));
  }
  const speed = document.createElement("span");
  speed.className = "speed";
  speed.textContent = message.speed ?? "";
  actions.append(speed);
  node.replaceChildren(...parts, body, actions);
}

function showMessages() {
  const messages = conversation()?.messages ?? [];
  const nodes = messages.map((message, i) => {
    const node = document.createElement("article");
    node.className = `message ${message.role}`;
    fillMessage(node, message, i === messages.length - 1);
    return node;
  });
  if (nodes.length === 0) {
    const empty = document.createElement("p");
    empty.className = "empty";
    empty.textContent = "Ask something. Conversations stay in this browser.";
    nodes.push(empty);
  }
  $("messages").replaceChildren(...nodes);
  $("messages").scrollTop = $("messages").scrollHeight;
}

function showAnswering() {
  $("send").hidden = answering !== undefined;
  $("stop").hidden = answering === undefined;
}

function openSidebar(isOpen) {
  $("sidebar").classList.toggle("open", isOpen);
  $("shade").hidden = !isOpen;
}

function choose(id) {
  answering?.abort();
  current = id;
  openSidebar(false);
  showProblem("");
  showConversations();
  showMessages();
}

function removeConversation(id) {
  if (id === current) answering?.abort();
  conversations = conversations.filter((one) => one.id !== id);
  save();
  choose(id === current ? conversations[0]?.id : current);
}

// ---- the server

const headers = () => ({ "Content-Type": "application/json", ...(settings.key ? { Authorization: `Bearer ${settings.key}` } : {}) });

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

function requestBody(messages) {
  const body = { model: $("model").value, stream: true, stream_options: { include_usage: true } };
  for (const name of settingNames) if (name !== "system" && settings[name] !== undefined) body[name] = settings[name];
  body.messages = messages.map(({ role, content }) => ({ role, content }));
  if (settings.system) body.messages.unshift({ role: "system", content: settings.system });
  return body;
}

const tokensPerSecond = (tokens, milliseconds) => `${tokens} tokens, ${((1000 * Math.max(tokens - 1, 0)) / Math.max(milliseconds, 1)).toFixed(1)} tokens/s`;

// Appends the answer to a conversation, as it arrives.
async function answer(into) {
  const message = { role: "assistant", content: "", reasoning: "" };
  const sent = into.messages.slice();
  into.messages.push(message);
  const control = (answering = new AbortController());
  showProblem("");
  showAnswering();
  showMessages();
  let frame = 0, first, chunks = 0;
  const draw = () => {
    frame = 0;
    if (conversation() !== into) return;
    const box = $("messages");
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    fillMessage(box.lastElementChild, message, true);
    if (follows) box.scrollTop = box.scrollHeight;
  };
  try {
    const reply = await fetch("/v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(requestBody(sent)), signal: control.signal });
    if (!reply.ok) throw new Error(await errorOf(reply));
    for await (const event of events(reply)) {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices[0];
      const delta = choice?.delta ?? {};
      message.content += delta.content ?? "";
      message.reasoning += delta.reasoning_content ?? "";
      if (delta.content || delta.reasoning_content) {
        first ??= performance.now();
        message.speed = tokensPerSecond(++chunks, performance.now() - first);
      }
      if (event.usage) message.speed = tokensPerSecond(event.usage.completion_tokens, performance.now() - (first ?? performance.now()));
      if (choice?.finish_reason === "length") message.cut = true;
      frame ||= requestAnimationFrame(draw);
    }
    if (message.cut) message.speed += ", cut by the limit";
  } catch (error) {
    if (error.name !== "AbortError") showProblem(error.message === "Failed to fetch" ? "The server cannot be reached." : error.message);
    if (!message.content && !message.reasoning) into.messages.pop();
  } finally {
    if (frame) cancelAnimationFrame(frame);
    if (answering === control) answering = undefined;
    save();
    showAnswering();
    if (conversation() === into) showMessages();
  }
}

async function send(text) {
  if (answering) return;
  let into = conversation();
  if (!into) {
    into = { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: text.slice(0, 60).replace(/\s+/g, " "), messages: [] };
    conversations.unshift(into);
    current = into.id;
    showConversations();
  }
  into.messages.push({ role: "user", content: text });
  save();
  await answer(into);
}

async function regenerate() {
  const into = conversation();
  if (answering || !into) return;
  while (into.messages.at(-1)?.role === "assistant") into.messages.pop();
  if (into.messages.length) await answer(into);
}

function edit(message) {
  if (answering) return;
  const into = conversation();
  into.messages.splice(into.messages.indexOf(message));
  save();
  showMessages();
  $("text").value = message.content;
  growText();
  $("text").focus();
}

async function showModels() {
  try {
    const reply = await fetch("/v1/models", { headers: headers() });
    if (!reply.ok) throw new Error(await errorOf(reply));
    const chosen = $("model").value || stored("model", "");
    const names = (await reply.json()).data.map((model) => model.id);
    $("model").replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
    showProblem("");
  } catch (error) {
    showProblem(error.message === "Failed to fetch" ? "The server cannot be reached." : error.message);
  }
}

// How busy the server is, while the page is looked at.
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

// ---- controls

function growText() {
  $("text").style.height = "auto";
  $("text").style.height = `${$("text").scrollHeight}px`;
}

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text || answering) return;
  $("text").value = "";
  growText();
  send(text);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("composer").requestSubmit();
});
$("text").addEventListener("input", growText);
$("stop").addEventListener("click", () => answering?.abort());
$("new").addEventListener("click", () => {
  choose(undefined);
  $("text").focus();
});
$("menu").addEventListener("click", () => openSidebar(true));
$("shade").addEventListener("click", () => openSidebar(false));
$("model").addEventListener("change", () => store("model", $("model").value));
$("open-settings").addEventListener("click", () => {
  for (const name of [...settingNames, "key"]) $(name).value = settings[name] ?? "";
  $("settings").showModal();
});
$("settings").addEventListener("close", () => {
  const keyBefore = settings.key;
  settings = {};
  for (const name of settingNames) {
    const value = $(name).value.trim();
    if (value) settings[name] = name === "system" ? value : Number(value);
  }
  if ($("key").value) settings.key = $("key").value;
  store("settings", settings);
  if (settings.key !== keyBefore) showModels();
});
$("forget").addEventListener("click", () => {
  if (!confirm("Delete all conversations that this browser keeps?")) return;
  conversations = [];
  save();
  $("settings").close();
  choose(undefined);
});

const preferredTheme = matchMedia("(prefers-color-scheme: dark)");
function showTheme() {
  document.documentElement.dataset.theme = stored("theme", preferredTheme.matches ? "dark" : "light");
}
preferredTheme.addEventListener("change", showTheme);
$("theme").addEventListener("click", () => {
  store("theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  showTheme();
});

showTheme();
showConversations();
showMessages();
showModels().then(showLive);
setInterval(showLive, 2000);
