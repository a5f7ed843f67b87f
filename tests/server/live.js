// A live server on loopback with a tiny model: the goldens' Llama with a tokenizer of bytes.
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const program = process.env.JERBOA ?? join(here, "../../build/release/bin/jerboa");

// The alphabet in which GPT-2 writes bytes.
function byteTokenizer() {
  const vocab = {};
  let next = 256;
  for (let byte = 0; byte < 256; ++byte) {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
    vocab[String.fromCodePoint(printable ? byte : next++)] = byte;
  }
  return {
    version: "1.0",
    added_tokens: [],
    normalizer: null,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab, merges: [] },
  };
}

const template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: ";

export function makeModel() {
  const folder = mkdtempSync(join(tmpdir(), "jerboa-model-"));
  const golden = join(here, "../data/goldens/llama");
  cpSync(join(golden, "model.safetensors"), join(folder, "model.safetensors"));
  const config = JSON.parse(readFileSync(join(golden, "config.json"), "utf8"));
  config.max_position_embeddings = 65536;
  delete config.eos_token_id; // so that an answer is as long as a test asks for
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(byteTokenizer()));
  writeFileSync(join(folder, "chat_template.jinja"), template);
  return folder;
}

/** An encoder, whose tokens are the words w0, w1, … */
export function makeEncoder() {
  const folder = mkdtempSync(join(tmpdir(), "jerboa-model-"));
  for (const file of ["config.json", "model.safetensors"]) cpSync(join(here, "../data/goldens/bert", file), join(folder, file));
  const vocab = Object.fromEntries(Array.from({ length: 256 }, (_, i) => [`w${i}`, i]));
  const tokenizer = { ...byteTokenizer(), pre_tokenizer: { type: "WhitespaceSplit" }, decoder: null, model: { type: "WordLevel", vocab, unk_token: "w9" } };
  writeFileSync(join(folder, "tokenizer.json"), JSON.stringify(tokenizer));
  return folder;
}

// Stops the servers of failed tests, which would otherwise keep the file from ending. A timer, because the file's own
// hooks run after this one and should stop their servers properly.
const running = new Set();
after(() => void setTimeout(() => running.forEach((child) => child.kill("SIGKILL")), 10_000).unref());

/** Starts `jerboa serve` with a model called "tiny"; stop() sends SIGTERM and returns the exit code. */
export async function serve(...options) {
  const folder = makeModel();
  const child = spawn(program, ["serve", `tiny=${folder}`, "--port", "0", "--device", "cpu", ...options], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  child.on("exit", () => running.delete(child));
  let log = "";
  child.stderr.on("data", (data) => (log += data));
  const exited = new Promise((resolve) => child.on("exit", (code, signal) => resolve(code ?? signal)));
  const address = await new Promise((resolve, reject) => {
    let output = "";
    child.stdout.on("data", (data) => {
      output += data;
      const found = output.match(/listening on (http:\S+)/);
      if (found) resolve(found[1]);
    });
    exited.then((code) => reject(new Error(`jerboa serve ended with ${code}: ${output}${log}`)));
  });
  return {
    address,
    pid: child.pid,
    log: () => log, // what it wrote to standard error
    exited,
    signal: (name) => child.kill(name),
    async stop() {
      child.kill("SIGTERM");
      const code = await exited;
      rmSync(folder, { recursive: true, force: true });
      return code;
    },
  };
}
