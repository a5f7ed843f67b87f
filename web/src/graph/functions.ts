import type { DType } from "../tensor.js";
import { type Dim, type Operand, type Tensor, applied, results, without } from "./tracing.js";

// The functions that are more than one op with its attributes and one result; ops.ts has all others.

/** 0, 1, … length - 1 */
export function arange(length: Dim, dtype: DType = "i32"): Tensor {
  return applied("arange", [], { length, dtype });
}
export function full(shape: readonly Dim[], value: number, dtype: DType = "f32"): Tensor {
  return applied("full", [], { shape, value, dtype });
}
export function zeros(shape: readonly Dim[], dtype: DType = "f32"): Tensor {
  return full(shape, 0, dtype);
}
export function zerosLike(x: Operand): Tensor {
  return applied("zeros_like", [x]);
}
/** A tensor of fixed values. */
export function constant(values: ArrayLike<number>, shape: readonly number[], dtype: DType = "f32"): Tensor {
  return applied("constant", [], { values: Array.from(values), shape, dtype });
}
/** Random numbers in [0, 1) that differ at every step and reproduce with the session's seed. */
export function randomUniform(shape: readonly Dim[]): Tensor {
  return applied("random_uniform", [], { shape });
}
export function randomNormal(shape: readonly Dim[]): Tensor {
  return applied("random_normal", [], { shape });
}

/** Makes a tensor an output of the graph under this name. */
export function output(name: string, x: Operand): void {
  results("output", [x], { name });
}
/** Makes a tensor readable after a step under this name; it is copied only on request. */
export function capture(x: Operand, name: string): Tensor {
  return applied("capture", [x], { name });
}
export interface StateOptions {
  readonly dtype?: DType | undefined;
  readonly init?: { readonly kind: "constant" | "normal" | "uniform"; readonly mean: number; readonly width: number } | undefined;
}
/** A value that is kept between steps but is not a parameter. */
export function state(name: string, shape: readonly number[], options: StateOptions = {}): Tensor {
  return applied("state", [], { name, shape, ...options });
}
/** Makes `value` the next version of a parameter or state. */
export function update(target: Operand, value: Operand): void {
  results("update", [target, value]);
}

export function square(x: Operand): Tensor {
  return applied("square", [x]);
}
/** If the exponent is a whole number, the base may be negative. */
export function pow(a: Operand, b: Operand): Tensor {
  return applied("pow", [a, b]);
}
/** x / sqrt(mean(x²) + eps) * weight over the last axis; eps is 1e-6 by default */
export function rmsNorm(x: Operand, options: { readonly weight?: Operand | undefined; readonly eps?: number | undefined } = {}): Tensor {
  return applied("rms_norm", [x, options.weight], { eps: options.eps });
}
/** gelu(a) * b, by tanh unless "none" is given */
export function geglu(a: Operand, b: Operand, approximate: "none" | "tanh" = "tanh"): Tensor {
  return applied("geglu", [a, b], { approximate });
}

/** Parts along an axis, given by the number of equal ones or by their sizes. */
export function split(x: Operand, parts: number | readonly Dim[], axis = -1): Tensor[] {
  return results("split", [x], typeof parts === "number" ? { parts, axis } : { sizes: parts, axis });
}
/** The k largest values along an axis in descending order, and their indices. */
export function topK(x: Operand, k: number, axis = -1): { values: Tensor; indices: Tensor } {
  const [values, indices] = results("top_k", [x], { k, axis });
  return { values: values!, indices: indices! };
}
/** The running maximum, and its index. */
export function cummax(x: Operand, options: { readonly axis?: number; readonly reverse?: boolean } = {}): { values: Tensor; indices: Tensor } {
  const [values, indices] = results("cummax", [x], { ...options });
  return { values: values!, indices: indices! };
}

export interface AttentionOptions {
  /** For q, k and v of [batch, time, heads * size]; without it they are [batch, heads, time, size]. */
  readonly heads?: number | undefined;
  /** Heads of k and v; by default as many as q has. */
  readonly kvHeads?: number | undefined;
  readonly causal?: boolean | undefined;
  /** By default 1 / sqrt(size of a head). */
  readonly scale?: number | undefined;
  readonly window?: number | undefined;
  readonly softCap?: number | undefined;
  readonly ring?: boolean | undefined;
  readonly mask?: Operand | undefined;
  readonly sinks?: Operand | undefined;
  readonly lengths?: Operand | undefined;
  readonly positions?: Operand | undefined;
  readonly table?: Operand | undefined;
  /** Captures the probabilities under this name. */
  readonly capture?: string | undefined;
}
const attentionOperands = ["mask", "sinks", "lengths", "positions", "table"] as const;

export function attention(q: Operand, k: Operand, v: Operand, options: AttentionOptions = {}): Tensor {
  const optional = attentionOperands.map((name) => options[name]);
  return applied("attention", [q, k, v, ...optional], without(options, attentionOperands));
}
/** The probabilities [batch, heads, time, keys] that attention would use. */
export function attentionWeights(q: Operand, k: Operand, options: AttentionOptions = {}): Tensor {
  const optional = attentionOperands.map((name) => options[name]);
  return applied("attention_weights", [q, k, ...optional], without(options, attentionOperands));
}
/** [batch, time, heads * size] → [batch, heads, time, size] */
export function splitHeads(x: Operand, heads: number): Tensor {
  return applied("split_heads", [x], { heads });
}
/** [batch, heads, time, size] → [batch, time, heads * size] */
export function mergeHeads(x: Operand): Tensor {
  return applied("merge_heads", [x]);
}

export interface RecurrentOptions {
  /** One row per sequence; by default zeros. */
  readonly state?: Operand | undefined;
  readonly positions?: Operand | undefined;
  readonly slots?: Operand | undefined;
}
/** Each channel of x [batch, time, channels] convolved with its row of weight [channels, taps]. */
export function causalConv1d(x: Operand, weight: Operand, options: RecurrentOptions = {}): { y: Tensor; state: Tensor } {
  const [next, y] = results("causal_conv1d", [options.state, x, weight, options.positions, options.slots]);
  return { y: y!, state: next! };
}
/** Attention without a softmax, with a state; with beta it is the gated delta rule. */
export function linearAttention(
  q: Operand,
  k: Operand,
  v: Operand,
  logDecay: Operand,
  options: RecurrentOptions & { readonly beta?: Operand | undefined } = {},
): { y: Tensor; state: Tensor } {
  const [next, y] = results("linear_attention", [options.state, q, k, v, logDecay, options.beta, options.positions, options.slots]);
  return { y: y!, state: next! };
}
