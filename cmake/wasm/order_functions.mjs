// Reorders the functions of a WASM module so that it compresses better:
//   node order_functions.mjs MODULE
// gzip's window is 32 KiB, and similar functions, most of them instances of one template, are further apart than that. So
// the next function is always the one that shares the most with those just before it. Nothing else changes: every
// function keeps its code, except for the numbers of the functions that it calls.
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const path = process.argv[2];
const bytes = readFileSync(path);
const sectionIds = { custom: 0, import: 2, function: 3, export: 7, start: 8, element: 9, code: 10 };

class Reader {
  constructor(at, end) {
    this.at = at;
    this.end = end;
  }
  byte() {
    return bytes[this.at++];
  }
  skip(count) {
    this.at += count;
  }
  unsigned() {
    let [value, scale] = [0, 1];
    for (;;) {
      const byte = this.byte();
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) return value;
    }
  }
  number() {
    while (this.byte() >= 128);
  }
  name() {
    const size = this.unsigned();
    this.skip(size);
    return bytes.toString("utf8", this.at - size, this.at);
  }
}

function leb(value) {
  const out = [];
  for (; value >= 128; value = Math.floor(value / 128)) out.push((value % 128) | 128);
  out.push(value);
  return Buffer.from(out);
}
const vector = (items) => Buffer.concat([leb(items.length), ...items]);

function sections() {
  const found = [];
  for (const reader = new Reader(8, bytes.length); reader.at < bytes.length; ) {
    const id = reader.byte();
    const size = reader.unsigned();
    found.push({ id, begin: reader.at, end: reader.at + size });
    reader.skip(size);
  }
  return found;
}

function importedFunctions(section) {
  const reader = new Reader(section.begin, section.end);
  let functions = 0;
  for (let left = reader.unsigned(); left > 0; --left) {
    reader.name();
    reader.name();
    if (reader.byte() !== 0) throw new Error("order_functions: only functions may be imported");
    reader.number();
    ++functions;
  }
  return functions;
}

const noOperand = (op) => [0x00, 0x01, 0x05, 0x0b, 0x0f, 0x19, 0x1a, 0x1b, 0xd1].includes(op) || (op >= 0x45 && op <= 0xc4);
const oneNumber = (op) => [0x02, 0x03, 0x04, 0x06, 0x07, 0x08, 0x09, 0x0c, 0x0d, 0x18, 0x41, 0x42, 0xd0].includes(op) || (op >= 0x20 && op <= 0x26);
/** Of instructions that begin with 0xfc: how many numbers follow. */
const prefixed = [0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1];

/** Where the code names functions: [{ begin, end, target }]. */
function callsIn({ begin, end }) {
  const reader = new Reader(begin, end);
  const calls = [];
  for (let groups = reader.unsigned(); groups > 0; --groups) {
    reader.number();
    reader.byte();
  }
  while (reader.at < end) {
    const op = reader.byte();
    if (noOperand(op)) continue;
    if (oneNumber(op)) reader.number();
    else if (op === 0x10 || op === 0xd2) {
      const at = reader.at;
      calls.push({ target: reader.unsigned(), begin: at, end: reader.at });
    } else if (op === 0x11 || (op >= 0x28 && op <= 0x3e)) {
      reader.number();
      reader.number();
    } else if (op === 0x0e) for (let labels = reader.unsigned() + 1; labels > 0; --labels) reader.number();
    else if (op === 0x1c) for (let types = reader.unsigned(); types > 0; --types) reader.byte();
    else if (op === 0x3f || op === 0x40) reader.byte();
    else if (op === 0x43) reader.skip(4);
    else if (op === 0x44) reader.skip(8);
    else if (op === 0xfc) for (let left = prefixed[reader.unsigned()]; left > 0; --left) reader.number();
    else throw new Error(`order_functions: unknown instruction 0x${op.toString(16)} at byte ${reader.at - 1}`);
  }
  return calls;
}

const window = 32 << 10;
const shingleBytes = 6;
const tooCommon = 400;

/** The distinct pieces of some bytes that each function consists of, as numbers; what many functions have tells little. */
function shinglesOf(bodies) {
  const pieces = bodies.map(({ begin, end }) => {
    const found = new Set();
    for (let at = begin; at + shingleBytes <= end; ++at) found.add(bytes.readUIntBE(at, shingleBytes));
    return found;
  });
  const owners = new Map();
  for (const [i, found] of pieces.entries())
    for (const piece of found) {
      const list = owners.get(piece);
      if (list === undefined) owners.set(piece, [i]);
      else list.push(i);
    }
  for (const [piece, list] of owners) if (list.length < 2 || list.length > tooCommon) owners.delete(piece);
  return { owners, pieces: pieces.map((found) => [...found].filter((piece) => owners.has(piece))) };
}

function similarOrder(bodies) {
  const { owners, pieces } = shinglesOf(bodies);
  const sizes = bodies.map(({ begin, end }) => end - begin);
  const shared = new Float64Array(bodies.length); // pieces that are in the window
  const inWindow = new Map();
  const enter = (i, sign) => {
    for (const piece of pieces[i]) {
      const before = inWindow.get(piece) ?? 0;
      inWindow.set(piece, before + sign);
      if (before + sign === 0 || (sign > 0 && before === 0)) for (const owner of owners.get(piece)) shared[owner] += sign;
    }
  };
  const left = new Set(bodies.keys());
  const order = [];
  for (let [oldest, held] = [0, 0]; left.size > 0; ) {
    let [best, score] = [-1, -1];
    for (const i of left) {
      const value = shared[i] / (sizes[i] + 20);
      if (value > score) [best, score] = [i, value];
    }
    left.delete(best);
    order.push(best);
    enter(best, 1);
    for (held += sizes[best]; held > window && oldest < order.length - 1; ++oldest) {
      enter(order[oldest], -1);
      held -= sizes[order[oldest]];
    }
  }
  return order;
}

const all = sections();
const one = (id) => all.find((section) => section.id === id);
const imported = importedFunctions(one(sectionIds.import));
const code = new Reader(one(sectionIds.code).begin, one(sectionIds.code).end);
const bodies = Array.from({ length: code.unsigned() }, () => {
  const size = code.unsigned();
  const begin = code.at;
  code.skip(size);
  return { begin, end: code.at };
});
const order = similarOrder(bodies);
const places = new Uint32Array(imported + bodies.length).map((_, i) => i);
for (const [place, i] of order.entries()) places[imported + i] = imported + place;

function rewrittenCode() {
  return vector(
    order.map((i) => {
      const { begin, end } = bodies[i];
      const parts = [];
      let at = begin;
      for (const call of callsIn(bodies[i])) {
        parts.push(bytes.subarray(at, call.begin), leb(places[call.target]));
        at = call.end;
      }
      const body = Buffer.concat([...parts, bytes.subarray(at, end)]);
      return Buffer.concat([leb(body.length), body]);
    }),
  );
}

function rewrittenTypes({ begin, end }) {
  const reader = new Reader(begin, end);
  const types = Array.from({ length: reader.unsigned() }, () => leb(reader.unsigned()));
  return vector(order.map((i) => types[i]));
}

function rewrittenExports({ begin, end }) {
  const reader = new Reader(begin, end);
  return vector(
    Array.from({ length: reader.unsigned() }, () => {
      const at = reader.at;
      reader.name();
      const kind = reader.byte();
      const name = bytes.subarray(at, reader.at);
      const index = reader.unsigned();
      return Buffer.concat([name, leb(kind === 0 ? places[index] : index)]);
    }),
  );
}

function rewrittenElements({ begin, end }) {
  const reader = new Reader(begin, end);
  return vector(
    Array.from({ length: reader.unsigned() }, () => {
      const at = reader.at;
      if (reader.unsigned() !== 0) throw new Error("order_functions: only active segments of table 0 are known");
      if (reader.byte() !== 0x41) throw new Error("order_functions: the place of a segment is not a constant");
      reader.number();
      reader.byte(); // the end of the constant
      const head = bytes.subarray(at, reader.at);
      return Buffer.concat([head, vector(Array.from({ length: reader.unsigned() }, () => leb(places[reader.unsigned()])))]);
    }),
  );
}

function rewritten(section) {
  switch (section.id) {
    case sectionIds.code:
      return rewrittenCode();
    case sectionIds.function:
      return rewrittenTypes(section);
    case sectionIds.export:
      return rewrittenExports(section);
    case sectionIds.element:
      return rewrittenElements(section);
    case sectionIds.start:
      return leb(places[new Reader(section.begin, section.end).unsigned()]);
    default:
      return bytes.subarray(section.begin, section.end);
  }
}

const isName = ({ id, begin, end }) => id === sectionIds.custom && new Reader(begin, end).name() === "name"; // of functions in the old order
const kept = all.filter((section) => !isName(section));
const result = Buffer.concat([
  bytes.subarray(0, 8),
  ...kept.flatMap((section) => {
    const content = rewritten(section);
    return [Buffer.from([section.id]), leb(content.length), content];
  }),
]);
new WebAssembly.Module(result); // throws if it is invalid
writeFileSync(path, result);
console.log(`${path}: ${gzipSync(bytes, { level: 9 }).length} bytes gzipped, ${gzipSync(result, { level: 9 }).length} with its functions in order of similarity`);
