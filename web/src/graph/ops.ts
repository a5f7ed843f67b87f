// Generated from include/jerboa/ir/ops.def: see docs/development.md.

import type { DType } from "../tensor.js";
import { type Dim, type Operand, type Tensor, applied, without } from "./tracing.js";

export interface ClampAttrs {
  /** By default 0.0. */
  readonly min?: number | undefined;
  /** By default 0.0. */
  readonly max?: number | undefined;
}

export interface ReduceAttrs {
  readonly axes?: readonly number[] | undefined;
  /** By default false. */
  readonly keepdims?: boolean | undefined;
}

export interface ArgmaxAttrs {
  /** By default -1. */
  readonly axis?: number | undefined;
  /** By default false. */
  readonly keepdims?: boolean | undefined;
}

export interface CumsumAttrs {
  /** By default -1. */
  readonly axis?: number | undefined;
  /** By default false. */
  readonly reverse?: boolean | undefined;
}

export interface ArgsortAttrs {
  /** By default -1. */
  readonly axis?: number | undefined;
  /** By default false. */
  readonly descending?: boolean | undefined;
}

export interface SwapAxesAttrs {
  /** By default -1. */
  readonly a?: number | undefined;
  /** By default -2. */
  readonly b?: number | undefined;
}

export interface SliceAttrs {
  /** By default 0. */
  readonly axis?: number | undefined;
  /** By default 0. */
  readonly start?: Dim | undefined;
  /** By default 0. */
  readonly end?: Dim | undefined;
  /** By default 1. */
  readonly step?: number | undefined;
}

export interface PadAttrs {
  readonly before?: readonly Dim[] | undefined;
  readonly after?: readonly Dim[] | undefined;
  /** By default 0.0. */
  readonly value?: number | undefined;
}

export interface OneHotAttrs {
  /** By default 0. */
  readonly depth?: Dim | undefined;
  /** By default "f32". */
  readonly dtype?: DType | undefined;
}

export interface MatmulAttrs {
  /** By default false. */
  readonly transposeA?: boolean | undefined;
  /** By default false. */
  readonly transposeB?: boolean | undefined;
}

export interface Conv1dAttrs {
  /** By default 1. */
  readonly stride?: number | undefined;
  /** By default 0. */
  readonly padding?: number | undefined;
  /** By default 1. */
  readonly dilation?: number | undefined;
  /** By default 1. */
  readonly groups?: number | undefined;
}

export interface Conv2dAttrs {
  /** By default [1,1]. */
  readonly stride?: readonly number[] | undefined;
  /** By default [0,0]. */
  readonly padding?: readonly number[] | undefined;
  /** By default [1,1]. */
  readonly dilation?: readonly number[] | undefined;
  /** By default 1. */
  readonly groups?: number | undefined;
}

export interface PoolAttrs {
  /** By default [2,2]. */
  readonly kernel?: readonly number[] | undefined;
  /** By default [2,2]. */
  readonly stride?: readonly number[] | undefined;
  /** By default [0,0]. */
  readonly padding?: readonly number[] | undefined;
}

export interface EpsAttrs {
  /** By default 1e-05. */
  readonly eps?: number | undefined;
}

export interface RopeAttrs {
  /** By default 10000.0. */
  readonly base?: number | undefined;
  /** By default 0. */
  readonly dims?: number | undefined;
  /** By default false. */
  readonly interleaved?: boolean | undefined;
  /** By default false. */
  readonly inverse?: boolean | undefined;
  /** By default "none". */
  readonly scaling?: "none" | "linear" | "llama3" | "yarn" | undefined;
  /** By default 1.0. */
  readonly factor?: number | undefined;
  /** By default 1.0. */
  readonly lowFreqFactor?: number | undefined;
  /** By default 4.0. */
  readonly highFreqFactor?: number | undefined;
  /** By default 32.0. */
  readonly betaFast?: number | undefined;
  /** By default 1.0. */
  readonly betaSlow?: number | undefined;
  /** By default 0.0. */
  readonly attentionFactor?: number | undefined;
  /** By default 0. */
  readonly originalContext?: number | undefined;
}

export interface CrossEntropyAttrs {
  /** By default 0.0. */
  readonly labelSmoothing?: number | undefined;
}

/** -x */
export function neg(x: Operand): Tensor {
  return applied("neg", [x]);
}

/** |x| */
export function abs(x: Operand): Tensor {
  return applied("abs", [x]);
}

/** square root */
export function sqrt(x: Operand): Tensor {
  return applied("sqrt", [x]);
}

/** 1 / sqrt(x) */
export function rsqrt(x: Operand): Tensor {
  return applied("rsqrt", [x]);
}

/** natural logarithm */
export function log(x: Operand): Tensor {
  return applied("log", [x]);
}

/** e to the power x */
export function exp(x: Operand): Tensor {
  return applied("exp", [x]);
}

/** exp(x) - 1, accurate near 0 */
export function expm1(x: Operand): Tensor {
  return applied("expm1", [x]);
}

/** sine of radians */
export function sin(x: Operand): Tensor {
  return applied("sin", [x]);
}

/** cosine of radians */
export function cos(x: Operand): Tensor {
  return applied("cos", [x]);
}

/** hyperbolic tangent */
export function tanh(x: Operand): Tensor {
  return applied("tanh", [x]);
}

/** 1 / (1 + exp(-x)) */
export function sigmoid(x: Operand): Tensor {
  return applied("sigmoid", [x]);
}

/** error function */
export function erf(x: Operand): Tensor {
  return applied("erf", [x]);
}

/** max(x, 0) */
export function relu(x: Operand): Tensor {
  return applied("relu", [x]);
}

/** x * sigmoid(x) */
export function silu(x: Operand): Tensor {
  return applied("silu", [x]);
}

/** x * Φ(x), exact or by tanh */
export function gelu(x: Operand, approximate: "none" | "tanh" = "none"): Tensor {
  return applied("gelu", [x], { approximate });
}

/** log(1 + exp(x)), without overflow */
export function softplus(x: Operand): Tensor {
  return applied("softplus", [x]);
}

/** largest integer not above x */
export function floor(x: Operand): Tensor {
  return applied("floor", [x]);
}

/** nearest integer, ties to even */
export function round(x: Operand): Tensor {
  return applied("round", [x]);
}

/** min(max(x, min), max) */
export function clamp(x: Operand, options: ClampAttrs = {}): Tensor {
  return applied("clamp", [x], options);
}

/** the same values in another type */
export function cast(x: Operand, dtype: DType): Tensor {
  return applied("cast", [x], { dtype });
}

/** x unchanged; no gradient flows back through it */
export function stopGradient(x: Operand): Tensor {
  return applied("stop_gradient", [x]);
}

/** not x */
export function logicalNot(x: Operand): Tensor {
  return applied("logical_not", [x]);
}

/** all bits flipped */
export function bitNot(x: Operand): Tensor {
  return applied("bit_not", [x]);
}

/** a + b, broadcasting */
export function add(a: Operand, b: Operand): Tensor {
  return applied("add", [a, b]);
}

/** a - b */
export function sub(a: Operand, b: Operand): Tensor {
  return applied("sub", [a, b]);
}

/** a * b */
export function mul(a: Operand, b: Operand): Tensor {
  return applied("mul", [a, b]);
}

/** a / b; integers truncate towards zero */
export function div(a: Operand, b: Operand): Tensor {
  return applied("div", [a, b]);
}

/** the larger of a and b */
export function maximum(a: Operand, b: Operand): Tensor {
  return applied("maximum", [a, b]);
}

/** the smaller of a and b */
export function minimum(a: Operand, b: Operand): Tensor {
  return applied("minimum", [a, b]);
}

/** a - b * trunc(a / b): the remainder with a's sign */
export function mod(a: Operand, b: Operand): Tensor {
  return applied("mod", [a, b]);
}

/** a == b */
export function equal(a: Operand, b: Operand): Tensor {
  return applied("equal", [a, b]);
}

/** a != b */
export function notEqual(a: Operand, b: Operand): Tensor {
  return applied("not_equal", [a, b]);
}

/** a < b */
export function less(a: Operand, b: Operand): Tensor {
  return applied("less", [a, b]);
}

/** a <= b */
export function lessEqual(a: Operand, b: Operand): Tensor {
  return applied("less_equal", [a, b]);
}

/** a > b */
export function greater(a: Operand, b: Operand): Tensor {
  return applied("greater", [a, b]);
}

/** a >= b */
export function greaterEqual(a: Operand, b: Operand): Tensor {
  return applied("greater_equal", [a, b]);
}

/** a and b */
export function logicalAnd(a: Operand, b: Operand): Tensor {
  return applied("logical_and", [a, b]);
}

/** a or b */
export function logicalOr(a: Operand, b: Operand): Tensor {
  return applied("logical_or", [a, b]);
}

/** bits set in both */
export function bitAnd(a: Operand, b: Operand): Tensor {
  return applied("bit_and", [a, b]);
}

/** bits set in either */
export function bitOr(a: Operand, b: Operand): Tensor {
  return applied("bit_or", [a, b]);
}

/** bits set in exactly one */
export function bitXor(a: Operand, b: Operand): Tensor {
  return applied("bit_xor", [a, b]);
}

/** a << (b mod 32) */
export function shiftLeft(a: Operand, b: Operand): Tensor {
  return applied("shift_left", [a, b]);
}

/** a >> (b mod 32) */
export function shiftRight(a: Operand, b: Operand): Tensor {
  return applied("shift_right", [a, b]);
}

/** a where the condition holds, else b */
export function where(condition: Operand, a: Operand, b: Operand): Tensor {
  return applied("where", [condition, a, b]);
}

/** sum over axes */
export function sum(x: Operand, options: ReduceAttrs = {}): Tensor {
  return applied("sum", [x], options);
}

/** mean over axes */
export function mean(x: Operand, options: ReduceAttrs = {}): Tensor {
  return applied("mean", [x], options);
}

/** largest value over axes */
export function max(x: Operand, options: ReduceAttrs = {}): Tensor {
  return applied("max", [x], options);
}

/** smallest value over axes */
export function min(x: Operand, options: ReduceAttrs = {}): Tensor {
  return applied("min", [x], options);
}

/** index of the largest value along an axis */
export function argmax(x: Operand, options: ArgmaxAttrs = {}): Tensor {
  return applied("argmax", [x], options);
}

/** whether no element is NaN or infinite */
export function allFinite(x: Operand): Tensor {
  return applied("all_finite", [x]);
}

/** sum of the squares of all elements of all operands, as f32 */
export function sumSquares(x: readonly Operand[]): Tensor {
  return applied("sum_squares", [...x]);
}

/** running sum along an axis, forwards or backwards */
export function cumsum(x: Operand, options: CumsumAttrs = {}): Tensor {
  return applied("cumsum", [x], options);
}

/** indices that sort along an axis */
export function argsort(x: Operand, options: ArgsortAttrs = {}): Tensor {
  return applied("argsort", [x], options);
}

/** the same elements in another shape; one size may be -1 */
export function reshape(x: Operand, shape: readonly Dim[]): Tensor {
  return applied("reshape", [x], { shape });
}

/** axes in another order */
export function transpose(x: Operand, perm: readonly number[]): Tensor {
  return applied("transpose", [x], { perm });
}

/** two axes exchanged */
export function swapAxes(x: Operand, options: SwapAxesAttrs = {}): Tensor {
  return applied("swap_axes", [x], options);
}

/** axes of size 1 removed */
export function squeeze(x: Operand, axes: readonly number[]): Tensor {
  return applied("squeeze", [x], { axes });
}

/** axes of size 1 added, at their positions in the result */
export function unsqueeze(x: Operand, axes: readonly number[]): Tensor {
  return applied("unsqueeze", [x], { axes });
}

/** repeated along axes of size 1 and along new leading axes */
export function broadcastTo(x: Operand, shape: readonly Dim[]): Tensor {
  return applied("broadcast_to", [x], { shape });
}

/** the reverse of broadcast_to: sums over the repeated axes */
export function sumToShape(x: Operand, shape: readonly Dim[]): Tensor {
  return applied("sum_to_shape", [x], { shape });
}

/** start, start + step, … below end, along an axis */
export function slice(x: Operand, options: SliceAttrs = {}): Tensor {
  return applied("slice", [x], options);
}

/** tensors one after another along an axis */
export function concat(x: readonly Operand[], axis: number = -1): Tensor {
  return applied("concat", [...x], { axis });
}

/** constant padding before and after along each axis */
export function pad(x: Operand, options: PadAttrs = {}): Tensor {
  return applied("pad", [x], options);
}

/** rows of a table by id */
export function embedding(table: Operand, ids: Operand): Tensor {
  return applied("embedding", [table, ids]);
}

/** rows of an int8 or int4 weight by id, as dequantise gives them */
export function embeddingQuantised(weight: Operand, scales: Operand, ids: Operand, options: { readonly mins?: Operand | undefined } = {}): Tensor {
  return applied("embedding_quantised", [weight, scales, options.mins, ids], without(options, ["mins"]));
}

/** for each index, the element of x there along an axis */
export function takeAlongAxis(x: Operand, indices: Operand, axis: number = -1): Tensor {
  return applied("take_along_axis", [x, indices], { axis });
}

/** x with updates put at indices along an axis; the last of equal indices wins */
export function scatter(x: Operand, indices: Operand, updates: Operand, axis: number = -1): Tensor {
  return applied("scatter", [x, indices, updates], { axis });
}

/** x with updates added at indices along an axis, in order */
export function scatterAdd(x: Operand, indices: Operand, updates: Operand, axis: number = -1): Tensor {
  return applied("scatter_add", [x, indices, updates], { axis });
}

/** 1 at the id along a new last axis, else 0 */
export function oneHot(ids: Operand, options: OneHotAttrs = {}): Tensor {
  return applied("one_hot", [ids], options);
}

/** matrix product of the last two axes, the others broadcasting */
export function matmul(a: Operand, b: Operand, options: MatmulAttrs = {}): Tensor {
  return applied("matmul", [a, b], options);
}

/** x times the transpose of an int8 or int4 weight [out, in]; every 32 weights of a row share a scale, [out, in / 32], and a minimum that is added to them */
export function matmulQuantised(x: Operand, weight: Operand, scales: Operand, options: { readonly mins?: Operand | undefined } = {}): Tensor {
  return applied("matmul_quantised", [x, weight, scales, options.mins], without(options, ["mins"]));
}

/** the values that an int8 or int4 weight […, out, in] represents, weight * scale + min, in the type of the scales */
export function dequantise(weight: Operand, scales: Operand, options: { readonly mins?: Operand | undefined } = {}): Tensor {
  return applied("dequantise", [weight, scales, options.mins], without(options, ["mins"]));
}

/** x's rows in groups, group g from offsets[g] to offsets[g + 1], each multiplied by w[g] */
export function matmulGrouped(x: Operand, w: Operand, offsets: Operand, transposeB: boolean = false): Tensor {
  return applied("matmul_grouped", [x, w, offsets], { transposeB });
}

/** x's rows in groups, group g from offsets[g] to offsets[g + 1], each multiplied by the transpose of weight[g], where weight is an int8 or int4 weight [groups, out, in] */
export function matmulGroupedQuantised(x: Operand, weight: Operand, scales: Operand, offsets: Operand, options: { readonly mins?: Operand | undefined } = {}): Tensor {
  return applied("matmul_grouped_quantised", [x, weight, scales, options.mins, offsets], without(options, ["mins"]));
}

/** convolution of [batch, channels, length] */
export function conv1d(x: Operand, weight: Operand, options: Conv1dAttrs & { readonly bias?: Operand | undefined } = {}): Tensor {
  return applied("conv1d", [x, weight, options.bias], without(options, ["bias"]));
}

/** convolution of [batch, channels, height, width] */
export function conv2d(x: Operand, weight: Operand, options: Conv2dAttrs & { readonly bias?: Operand | undefined } = {}): Tensor {
  return applied("conv2d", [x, weight, options.bias], without(options, ["bias"]));
}

/** largest value of each window */
export function maxPool2d(x: Operand, options: PoolAttrs = {}): Tensor {
  return applied("max_pool2d", [x], options);
}

/** mean of each window, padding counted */
export function avgPool2d(x: Operand, options: PoolAttrs = {}): Tensor {
  return applied("avg_pool2d", [x], options);
}

/** exp(x - max) / sum over an axis */
export function softmax(x: Operand, axis: number = -1): Tensor {
  return applied("softmax", [x], { axis });
}

/** x - log(sum(exp(x))) over an axis */
export function logSoftmax(x: Operand, axis: number = -1): Tensor {
  return applied("log_softmax", [x], { axis });
}

/** x[…, t, s] where s <= t, else a fill value */
export function whereCausal(x: Operand, fill: number = 0.0): Tensor {
  return applied("where_causal", [x], { fill });
}

/** softmax over the last axis of the entries with s <= t, 0 elsewhere */
export function causalSoftmax(x: Operand): Tensor {
  return applied("causal_softmax", [x]);
}

/** (x - mean) / sqrt(variance + eps) * weight + bias over the last axis */
export function layerNorm(x: Operand, options: EpsAttrs & { readonly weight?: Operand | undefined } & { readonly bias?: Operand | undefined } = {}): Tensor {
  return applied("layer_norm", [x, options.weight, options.bias], without(options, ["weight", "bias"]));
}

/** rotary embedding of [batch, heads, time, size] at positions [batch, time], by default 0, 1, … */
export function rope(x: Operand, options: RopeAttrs & { readonly positions?: Operand | undefined } = {}): Tensor {
  return applied("rope", [x, options.positions], without(options, ["positions"]));
}

/** -log softmax(logits)[target] per position, 0 where the target is negative, times the mask */
export function crossEntropy(logits: Operand, targets: Operand, options: CrossEntropyAttrs & { readonly mask?: Operand | undefined } = {}): Tensor {
  return applied("cross_entropy", [logits, targets, options.mask], without(options, ["mask"]));
}

/** silu(a) * b */
export function swiglu(a: Operand, b: Operand): Tensor {
  return applied("swiglu", [a, b]);
}
