// Compares Jerboa with ONNX Runtime: sentences of 64 tokens through the same BERT encoder in f32 on two CPU threads each,
// taking turns in one run. Jerboa's time includes its tokenizer; ONNX Runtime gets tokens, in its best batch size
// and its best form of the model.
// usage: node bench/embeddings/compare.mjs BUILD_DIR MODEL_FOLDER ONNXRUNTIME_FOLDER [ROUNDS [SENTENCES]]
// ONNXRUNTIME_FOLDER is where `npm install onnxruntime-node` was run.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { bertOnnx } from './bert_onnx.mjs';

const [build, model, runtime, rounds = '5', sentences = '1000'] = process.argv.slice(2);
const ort = createRequire(join(resolve(runtime), 'package.json'))('onnxruntime-node');
const texts = Number(sentences), tokens = 64;
const folder = mkdtempSync(join(tmpdir(), 'jerboa-bench-'));

// Words of one token each, between [CLS] and [SEP].
const words = 'the a small large old new red green house river city dog cat bird tree stone water fire sun moon day night man woman child walks runs sees finds makes takes gives under over near with and but then slowly often never'.split(' ');
let seed = 1;
const random = (n) => ((seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff) >>> 8) % n;
const sentence = () => Array.from({ length: tokens - 2 }, () => words[random(words.length)]).join(' ');
const [textFile, idFile, vectorFile] = ['texts', 'ids', 'vectors'].map((name) => join(folder, name));
writeFileSync(textFile, Array.from({ length: texts }, () => sentence() + '\n').join(''));

const jerboa = spawn(join(build, 'bin/embeddings_bench'), [model, textFile, idFile, vectorFile],
  { stdio: ['pipe', 'pipe', 'inherit'] });
const answers = createInterface({ input: jerboa.stdout })[Symbol.asyncIterator]();
const answer = async () => {
  const { value, done } = await answers.next();
  if (done) throw new Error('embeddings_bench ended early');
  return value;
};
const runJerboa = async () => {
  jerboa.stdin.write('run\n');
  return Number(await answer());
};

if (await answer() !== 'ready') throw new Error('embeddings_bench did not start');
const ids = new Int32Array(Uint8Array.from(readFileSync(idFile)).buffer);
const wanted = new Float32Array(Uint8Array.from(readFileSync(vectorFile)).buffer);

const open = async (fused) => {
  const { bytes, result } = bertOnnx(model, fused);
  const session = await ort.InferenceSession.create(bytes,
    { intraOpNumThreads: 2, interOpNumThreads: 1, graphOptimizationLevel: 'all', executionMode: 'sequential' });
  return async (batch) => {
    const vectors = [];
    const begin = process.hrtime.bigint();
    for (let at = 0; at < texts; at += batch) {
      const rows = Math.min(batch, texts - at), shape = [rows, tokens];
      const part = BigInt64Array.from(ids.subarray(at * tokens, (at + rows) * tokens), BigInt);
      const mask = new BigInt64Array(part.length).fill(1n);
      const results = await session.run({ input_ids: new ort.Tensor('int64', part, shape),
        attention_mask: new ort.Tensor('int64', mask, shape) });
      vectors.push(results[result].data);
    }
    return { seconds: Number(process.hrtime.bigint() - begin) / 1e9, vectors };
  };
};

const candidates = [];
for (const fused of [true, false]) {
  const run = await open(fused);
  for (const batch of [8, 32]) {
    const { vectors, seconds } = await run(batch);
    let worst = 0, at = 0;
    for (const part of vectors) for (const value of part) worst = Math.max(worst, Math.abs(value - wanted[at++]));
    if (at !== wanted.length || !(worst < 1e-4)) throw new Error(`results differ by ${worst}`);
    candidates.push({ name: `${fused ? 'fused' : 'standard'} operators, batches of ${batch}`, run: () => run(batch), seconds });
  }
}
candidates.sort((a, b) => a.seconds - b.seconds);

const median = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
const own = [], other = [];
for (let round = 0; round < Number(rounds); ++round) {
  own.push(await runJerboa());
  other.push((await candidates[0].run()).seconds);
}
const ratios = own.map((seconds, i) => other[i] / seconds);
for (const { name, seconds } of candidates) console.log(`ONNX Runtime, ${name}: ${seconds.toFixed(3)} s (first run)`);
console.log(`Jerboa: ${median([...own]).toFixed(3)} s; ONNX Runtime: ${median([...other]).toFixed(3)} s; ` +
  `Jerboa is ${median(ratios).toFixed(2)} times as fast (medians of ${rounds} rounds)`);
jerboa.stdin.end();
rmSync(folder, { recursive: true });
