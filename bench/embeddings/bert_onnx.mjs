// Writes a BERT encoder with mean pooling as an ONNX model in f32, from a Hugging Face folder. With `fused` it consists
// of the operators that ONNX Runtime's own transformer optimizer produces (attention, skip layer norms, biased GELU);
// without, of standard ones only, as exporters write them.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

// Protocol buffers: a field is a number with a varint, a 32-bit or a length-delimited value.
const varint = (value) => {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
};
const integer = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const block = (field, bytes) => Buffer.concat([varint((field << 3) | 2), varint(bytes.length), bytes]);
const text = (field, value) => block(field, Buffer.from(value));
const number = (field, value) => {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return Buffer.concat([varint((field << 3) | 5), bytes]);
};

const types = { float: 1, int32: 6, int64: 7 };

const attribute = (name, value) => {
  const kinds = { float: () => [number(2, value.float), integer(20, 1)], int: () => [integer(3, value.int), integer(20, 2)],
    ints: () => [...value.ints.map((item) => integer(8, item)), integer(20, 7)] };
  return Buffer.concat([text(1, name), ...kinds[Object.keys(value)[0]]()]);
};

class Graph {
  nodes = [];
  initializers = [];
  count = 0;

  add(op, inputs, attributes = {}, domain = '') {
    const output = `v${this.count++}`;
    this.nodes.push(Buffer.concat([...inputs.map((name) => text(1, name)), text(2, output), text(4, op),
      ...Object.entries(attributes).map(([name, value]) => block(5, attribute(name, value))), text(7, domain)]));
    return output;
  }
  constant(shape, values) {
    const name = `c${this.count++}`;
    const type = values instanceof Float32Array ? types.float : types.int64;
    const raw = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
    this.initializers.push(Buffer.concat([...shape.map((size) => integer(1, size)), integer(2, type), text(8, name), block(9, raw)]));
    return name;
  }
  integers(values) { return this.constant([values.length], BigInt64Array.from(values.map(BigInt))); }

  bytes(inputs, outputs) {
    const value = ([name, type, shape]) => Buffer.concat([text(1, name), block(2, block(1, Buffer.concat([integer(1, type),
      block(2, Buffer.concat(shape.map((dim) => block(1, typeof dim === 'number' ? integer(1, dim) : text(2, dim)))))])))]);
    const graph = Buffer.concat([...this.nodes.map((node) => block(1, node)), text(2, 'bert'),
      ...this.initializers.map((item) => block(5, item)), ...inputs.map((item) => block(11, value(item))),
      ...outputs.map((item) => block(12, value(item)))]);
    const opset = (domain, version) => block(8, Buffer.concat([text(1, domain), integer(2, version)]));
    return Buffer.concat([integer(1, 9), block(7, graph), opset('', 20), opset('com.microsoft', 1)]);
  }
}

const halfToFloat = (half) => {
  const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
};

const readWeights = (path) => {
  const file = readFileSync(path), length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString());
  return (name) => {
    const { dtype, shape, data_offsets: [begin, end] } = header[name];
    const bytes = Uint8Array.from(file.subarray(8 + length + begin, 8 + length + end)).buffer;
    if (dtype === 'F32') return { shape, values: new Float32Array(bytes) };
    if (dtype !== 'F16') throw new Error(`${name} is ${dtype}`);
    return { shape, values: Float32Array.from(new Uint16Array(bytes), halfToFloat) };
  };
};

const transposed = ({ shape: [rows, columns], values }) => {
  const turned = new Float32Array(values.length);
  for (let i = 0; i < rows; ++i) for (let j = 0; j < columns; ++j) turned[j * rows + i] = values[i * columns + j];
  return { shape: [columns, rows], values: turned };
};

// Concatenates matrices [rows, columns] along their columns.
const beside = (parts) => {
  const rows = parts[0].shape[0], widths = parts.map(({ shape }) => shape[1]), width = widths.reduce((a, b) => a + b);
  const values = new Float32Array(rows * width);
  for (let i = 0; i < rows; ++i)
    parts.reduce((at, { values: part, shape: [, columns] }) => {
      values.set(part.subarray(i * columns, (i + 1) * columns), i * width + at);
      return at + columns;
    }, 0);
  return { shape: [rows, width], values };
};
const joined = (parts) => {
  const values = new Float32Array(parts.reduce((sum, part) => sum + part.values.length, 0));
  parts.reduce((at, part) => (values.set(part.values, at), at + part.values.length), 0);
  return { shape: [values.length], values };
};

export const bertOnnx = (folder, fused) => {
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
  const weight = readWeights(join(folder, 'model.safetensors'));
  const { hidden_size: width, num_attention_heads: heads, num_hidden_layers: layers } = config;
  const graph = new Graph(), eps = { epsilon: { float: config.layer_norm_eps } };
  const put = ({ shape, values }) => graph.constant(shape, values);
  const microsoft = 'com.microsoft';
  const linear = (name, x) => graph.add('Add', [graph.add('MatMul', [x, put(transposed(weight(`${name}.weight`)))]),
    put(weight(`${name}.bias`))]);
  const product = (name, x) => graph.add('MatMul', [x, put(transposed(weight(`${name}.weight`)))]);
  const norm = (name, x) => graph.add('LayerNormalization', [x, put(weight(`${name}.weight`)), put(weight(`${name}.bias`))],
    { axis: { int: -1 }, ...eps });
  const skipNorm = (name, x, skip, bias) => graph.add('SkipLayerNormalization',
    [x, skip, put(weight(`${name}.weight`)), put(weight(`${name}.bias`)), put(weight(bias))], eps, microsoft);

  const fusedLayer = (name, x, mask) => {
    const part = (kind) => `${name}.attention.self.${kind}`, kinds = ['query', 'key', 'value'];
    const qkv = put(beside(kinds.map((kind) => transposed(weight(`${part(kind)}.weight`)))));
    const bias = put(joined(kinds.map((kind) => weight(`${part(kind)}.bias`))));
    const seen = graph.add('Attention', [x, qkv, bias, mask], { num_heads: { int: heads } }, microsoft);
    const middle = skipNorm(`${name}.attention.output.LayerNorm`, product(`${name}.attention.output.dense`, seen), x,
      `${name}.attention.output.dense.bias`);
    const up = graph.add('BiasGelu', [product(`${name}.intermediate.dense`, middle), put(weight(`${name}.intermediate.dense.bias`))],
      {}, microsoft);
    return skipNorm(`${name}.output.LayerNorm`, product(`${name}.output.dense`, up), middle, `${name}.output.dense.bias`);
  };
  const plainLayer = (name, x, mask) => {
    const split = (kind, perm) => graph.add('Transpose', [graph.add('Reshape',
      [linear(`${name}.attention.self.${kind}`, x), graph.integers([0, 0, heads, width / heads])])], { perm: { ints: perm } });
    const scores = graph.add('Div', [graph.add('MatMul', [split('query', [0, 2, 1, 3]), split('key', [0, 2, 3, 1])]),
      graph.constant([], Float32Array.of(Math.sqrt(width / heads)))]);
    const shares = graph.add('Softmax', [graph.add('Add', [scores, mask])], { axis: { int: -1 } });
    const merged = graph.add('Reshape', [graph.add('Transpose', [graph.add('MatMul', [shares, split('value', [0, 2, 1, 3])])],
      { perm: { ints: [0, 2, 1, 3] } }), graph.integers([0, 0, width])]);
    const middle = norm(`${name}.attention.output.LayerNorm`,
      graph.add('Add', [linear(`${name}.attention.output.dense`, merged), x]));
    const up = graph.add('Gelu', [linear(`${name}.intermediate.dense`, middle)]);
    return norm(`${name}.output.LayerNorm`, graph.add('Add', [linear(`${name}.output.dense`, up), middle]));
  };

  const words = graph.add('Gather', [put(weight('embeddings.word_embeddings.weight')), 'input_ids']);
  const time = graph.add('Slice', [graph.add('Shape', ['input_ids']), graph.integers([1]), graph.integers([2])]);
  const places = graph.add('Slice', [put(weight('embeddings.position_embeddings.weight')), graph.integers([0]), time, graph.integers([0])]);
  const type = weight('embeddings.token_type_embeddings.weight').values.slice(0, width);
  const sum = graph.add('Add', [graph.add('Add', [words, places]), graph.constant([width], type)]);
  let x = norm('embeddings.LayerNorm', sum);
  const mask = graph.add('Cast', ['attention_mask'], { to: { int: fused ? types.int32 : types.float } });
  const hidden = fused ? mask : graph.add('Mul', [graph.add('Sub', [graph.add('Unsqueeze', [mask, graph.integers([1, 2])]),
    graph.constant([], Float32Array.of(1))]), graph.constant([], Float32Array.of(1e9))]);
  for (let layer = 0; layer < layers; ++layer) x = (fused ? fusedLayer : plainLayer)(`encoder.layer.${layer}`, x, hidden);
  const shares = graph.add('Unsqueeze', [graph.add('Cast', ['attention_mask'], { to: { int: types.float } }), graph.integers([2])]);
  const pooled = graph.add('Div', [graph.add('ReduceSum', [graph.add('Mul', [x, shares]), graph.integers([1])], { keepdims: { int: 0 } }),
    graph.add('ReduceSum', [shares, graph.integers([1])], { keepdims: { int: 0 } })]);
  const result = graph.add('LpNormalization', [pooled], { axis: { int: -1 }, p: { int: 2 } });
  return { result, bytes: graph.bytes([['input_ids', types.int64, ['batch', 'time']], ['attention_mask', types.int64, ['batch', 'time']]],
    [[result, types.float, ['batch', width]]]) };
};
