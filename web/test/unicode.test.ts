import assert from "node:assert/strict";
import { test } from "node:test";

import { writeBundle } from "../src/compiler/bundle.js";
import { CompilerModule } from "../src/compiler/module.js";

// The tables of Unicode are packed in jerboa.wasm (cmake/wasm/pack_utf8proc.mjs): their results are compared with
// JavaScript's.

const module = await CompilerModule.load();

// Tokens are bytes, so the tokens of a text are the normalised text.
const printable = (byte: number) => (byte >= 33 && byte <= 126) || (byte >= 161 && byte !== 173);
let others = 0;
const vocabulary = Object.fromEntries(Array.from({ length: 256 }, (_, byte) => [String.fromCodePoint(printable(byte) ? byte : 256 + others++), byte]));

function normalised(form: string, text: string): string {
  const tokenizer = JSON.stringify({
    version: "1.0",
    added_tokens: [],
    normalizer: { type: form },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    post_processor: null,
    decoder: { type: "ByteLevel" },
    model: { type: "BPE", vocab: vocabulary, merges: [] },
  });
  const handle = module.handle("jerboa_tokenizer_create", writeBundle(["tokenizer.json"], [new TextEncoder().encode(tokenizer)]));
  try {
    const tokens = new Int32Array(module.bytes("jerboa_tokenizer_encode", handle, text, 0).buffer);
    return new TextDecoder().decode(Uint8Array.from(tokens));
  } finally {
    module.number("jerboa_tokenizer_free", handle);
  }
}

/** Scripts that have not grown since Unicode 15, so that both sides agree. */
const ranges = [[0x20, 0x52f], [0x600, 0x6ff], [0x900, 0xdff], [0x1e00, 0x206f], [0x2070, 0x209f], [0x2100, 0x214f], [0x2460, 0x24ff], [0x3040, 0x33ff], [0x4e00, 0x4e20], [0xac00, 0xd7a3], [0xf900, 0xfad9], [0xfb00, 0xfdff], [0xfe30, 0xffef], [0x1d400, 0x1d7ff], [0x2f800, 0x2fa1d]] as const;
const letters = ranges.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => String.fromCodePoint(first + i)));

for (const form of ["NFC", "NFD", "NFKC", "NFKD"])
  test(`${form} of ${letters.length} letters, and of letters with marks, agrees with JavaScript`, () => {
    const text = letters.join(" ") + "e\u0323\u0302 \u1100\u1161\u11a8 q\u0307\u0323";
    assert.equal(normalised(form, text), text.normalize(form));
  });

test("lower case agrees with JavaScript", () => {
  const simple = letters.filter((letter) => letter.toLowerCase().length === letter.length && letter !== "Σ");
  const text = simple.join(" ");
  assert.equal(normalised("Lowercase", text), text.toLowerCase());
});
