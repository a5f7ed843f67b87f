import { markdown } from "./markdown.js";
import { addSettings } from "./settings.js";
import { store, stored } from "./storage.js";
import "./theme.js";

// A page of conversations, which stay in the browser. The page decides who answers: the server's page asks its server,
// the standalone one a model on the visitor's device. Both have the elements that chat.css lays out.

const $ = (id) => document.getElementById(id);

export function showProblem(text) {
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

const tokensPerSecond = (tokens, milliseconds) => `${tokens} tokens, ${((1000 * Math.max(tokens - 1, 0)) / Math.max(milliseconds, 1)).toFixed(1)} tokens/s`;

/**
 * Begins the page. `answer(messages, settings, signal)` gives the pieces of an answer as they arrive:
 * { content, reasoning, tokens, isCut }, each optional, where `tokens` is how many there are so far. `maxTokens`, `passwords`
 * and `switches` are those of addSettings; `onSettings` is called with the settings before they change. `mayAsk` says whether
 * there is someone to ask.
 *
 * @param {{
 *   answer: (messages: { role: string, content: string }[], settings: Record<string, any>, signal: AbortSignal) =>
 *     AsyncIterable<{ content?: string, reasoning?: string, tokens?: number, isCut?: boolean }>,
 *   maxTokens: string,
 *   passwords?: { name: string, label: string }[],
 *   switches?: { name: string, label: string }[],
 *   onSettings?: (before: Record<string, any>) => void,
 *   mayAsk?: () => boolean,
 *   emptyText?: string,
 * }} page
 */
export function startChat({ answer, maxTokens, passwords = [], switches = [], onSettings = () => {}, mayAsk = () => true, emptyText = "Ask something. Conversations stay in this browser." }) {
  let settings = stored("settings", {});
  let conversations = stored("conversations", []); // { id, title, messages: [{ role, content, reasoning, speed }] }
  let current = conversations[0]?.id;
  let answering; // an AbortController while an answer is being generated

  const conversation = () => conversations.find((one) => one.id === current);
  const save = () => {
    if (!store("conversations", conversations)) showProblem("This browser has no room for more conversations; delete some to keep new ones.");
  };

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
      empty.textContent = emptyText;
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

  // Appends the answer to a conversation, as it arrives.
  async function answerInto(into) {
    const message = { role: "assistant", content: "", reasoning: "" };
    const asked = into.messages.map(({ role, content }) => ({ role, content }));
    if (settings.system) asked.unshift({ role: "system", content: settings.system });
    into.messages.push(message);
    const control = (answering = new AbortController());
    showProblem("");
    showAnswering();
    showMessages();
    let frame = 0, first, tokens = 0, isCut = false;
    const draw = () => {
      frame = 0;
      if (conversation() !== into) return;
      const box = $("messages");
      const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
      fillMessage(box.lastElementChild, message, true);
      if (follows) box.scrollTop = box.scrollHeight;
    };
    try {
      for await (const piece of answer(asked, settings, control.signal)) {
        message.content += piece.content ?? "";
        message.reasoning += piece.reasoning ?? "";
        isCut ||= piece.isCut ?? false;
        if (piece.content || piece.reasoning) {
          first ??= performance.now();
          ++tokens;
        }
        tokens = piece.tokens ?? tokens;
        if (tokens > 0) message.speed = tokensPerSecond(tokens, performance.now() - (first ?? performance.now()));
        frame ||= requestAnimationFrame(draw);
      }
      if (isCut) message.speed += ", cut by the limit";
    } catch (error) {
      if (error.name !== "AbortError") showProblem(error.message);
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
    if (answering || !mayAsk()) return;
    let into = conversation();
    if (!into) {
      into = { id: crypto.randomUUID?.() ?? String(Date.now() + Math.random()), title: text.slice(0, 60).replace(/\s+/g, " "), messages: [] };
      conversations.unshift(into);
      current = into.id;
      showConversations();
    }
    into.messages.push({ role: "user", content: text });
    save();
    await answerInto(into);
  }

  async function regenerate() {
    const into = conversation();
    if (answering || !into || !mayAsk()) return;
    while (into.messages.at(-1)?.role === "assistant") into.messages.pop();
    if (into.messages.length) await answerInto(into);
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

  function growText() {
    $("text").style.height = "auto";
    $("text").style.height = `${$("text").scrollHeight}px`;
  }

  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (!text || answering || !mayAsk()) return;
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
  const dialog = addSettings({
    maxTokens,
    passwords,
    switches,
    onForget: () => {
      if (!confirm("Delete all conversations that this browser keeps?")) return;
      conversations = [];
      save();
      $("settings").close();
      choose(undefined);
    },
  });
  $("open-settings").addEventListener("click", () => dialog.show(settings));
  dialog.onClose((written) => {
    const before = settings;
    settings = written;
    store("settings", settings);
    onSettings(before);
  });

  showConversations();
  showMessages();

  return { settings: () => settings, showMessages };
}
