// The settings dialog of a chat page.

/** The settings of every page; all but the system message are numbers. */
export const settingNames = ["system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

const grid = [
  { name: "temperature", label: "Temperature", range: { min: 0, max: 5, step: 0.1 }, placeholder: "model's" },
  { name: "top_p", label: "Top-p", range: { min: 0, max: 1, step: 0.05 }, placeholder: "model's" },
  { name: "top_k", label: "Top-k", range: { min: 0, step: 1 }, placeholder: "model's" },
  { name: "min_p", label: "Min-p", range: { min: 0, max: 1, step: 0.05 }, placeholder: "model's" },
  { name: "max_tokens", label: "Maximum tokens", range: { min: 1, step: 1 }, placeholder: "" },
  { name: "seed", label: "Seed", range: { step: 1 }, placeholder: "random" },
];

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const labelled = (label, field) => element("label", {}, `${label} `, field);

/**
 * Adds the dialog to the page. `maxTokens` says what an empty field for the most tokens means; `passwords` are further
 * fields of the page, which are secrets; `switches` are on unless the user turns them off, which is written as false.
 *
 * @param {{ maxTokens: string, passwords: { name: string, label: string }[], switches?: { name: string, label: string }[],
 *   onForget: () => void }} page
 * @returns {{ show: (settings: Record<string, any>) => void, onClose: (action: (settings: Record<string, any>) => void) => void }}
 */
export function addSettings({ maxTokens, passwords, switches = [], onForget }) {
  const numbers = grid.map(({ name, label, range, placeholder }) =>
    labelled(label, element("input", { id: name, type: "number", placeholder: name === "max_tokens" ? maxTokens : placeholder, ...range })),
  );
  const secrets = passwords.map(({ name, label }) => labelled(label, element("input", { id: name, type: "password", autocomplete: "off" })));
  const boxes = switches.map(({ name, label }) => element("label", { className: "row" }, element("input", { id: name, type: "checkbox" }), ` ${label}`));
  const dialog = element(
    "dialog",
    { id: "settings" },
    element(
      "form",
      { method: "dialog" },
      element("h2", { textContent: "Settings" }),
      labelled("System message", element("textarea", { id: "system", rows: 3 })),
      element("div", { className: "grid" }, ...numbers),
      ...secrets,
      ...boxes,
      element(
        "div",
        { className: "row" },
        element("button", { id: "forget", type: "button", className: "danger", textContent: "Delete all conversations", onclick: onForget }),
        element("span", { className: "space" }),
        element("button", { value: "done", className: "primary", textContent: "Done" }),
      ),
    ),
  );
  document.body.append(dialog);

  const names = [...settingNames, ...passwords.map(({ name }) => name)];
  const field = (name) => dialog.querySelector(`#${name}`);
  const isNumber = (name) => grid.some((one) => one.name === name);
  const written = () => {
    const texts = names.map((name) => [name, field(name).value.trim()]).filter(([, text]) => text !== "");
    const off = switches.filter(({ name }) => !field(name).checked).map(({ name }) => [name, false]);
    return Object.fromEntries([...texts.map(([name, text]) => [name, isNumber(name) ? Number(text) : text]), ...off]);
  };
  return {
    show(settings) {
      for (const name of names) field(name).value = settings[name] ?? "";
      for (const { name } of switches) field(name).checked = settings[name] !== false;
      dialog.showModal();
    },
    onClose(action) {
      dialog.addEventListener("close", () => action(written()));
    },
  };
}
