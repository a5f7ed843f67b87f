import { asCount } from "../checks.js";
import { UsageError } from "../errors.js";
import type { Init } from "../initialize.js";
import type { DType } from "../tensor.js";
import { randomUniform, rmsNorm } from "./functions.js";
import { cast, conv1d, conv2d, embedding, greaterEqual, layerNorm, matmul, where } from "./ops.js";
import { Parameter, init } from "./parameter.js";
import { type Operand, Tensor, currentGraph, inModule } from "./tracing.js";

// Modules: objects that hold parameters and apply ops to them, with the C++ library's names, shapes and initial values,
// so that each can load what the other saves. Weights are [out, in], as in Hugging Face files. A module computes in the
// type of its input, to which its parameters are cast.

function fanIn(count: number): Init {
  return init.uniform(1 / Math.sqrt(Math.max(count, 1)));
}

function sizes(owner: string, ...values: number[]): void {
  for (const value of values) asCount(value, `${owner}: a size`);
}

/** The module of "blocks.0.qkv.weight" is blocks.0.qkv. */
function moduleOf(weight: Parameter): string {
  return weight.path.slice(0, Math.max(0, weight.path.lastIndexOf(".")));
}

function inTypeOf(x: Operand, parameter: Parameter): Operand {
  const isFloat = x instanceof Tensor && (x.dtype === "f32" || x.dtype === "f16" || x.dtype === "bf16");
  return isFloat ? cast(parameter, x.dtype) : parameter;
}

// Errors inside of `body` name the module, and so does its result.
function called(weight: Parameter, body: () => Tensor): Tensor {
  const module = moduleOf(weight);
  return inModule(module, () => body().named(module === "" ? `${weight.path}_out` : module));
}

export interface LinearOptions {
  readonly bias?: boolean;
  /** The weight's; by default uniform within 1 / sqrt(in). */
  readonly init?: Init;
  readonly dtype?: DType;
}
export class Linear {
  readonly weight: Parameter;
  readonly bias?: Parameter;

  constructor(inSize: number, outSize: number, options: LinearOptions = {}) {
    const owner = `nn.Linear(${inSize}, ${outSize})`;
    sizes(owner, inSize, outSize);
    const { dtype } = options;
    this.weight = new Parameter([outSize, inSize], { init: options.init ?? fanIn(inSize), dtype }, owner);
    if (options.bias ?? true)
      this.bias = new Parameter([outSize], { init: options.init === undefined ? fanIn(inSize) : init.zeros(), dtype, decay: false }, owner);
  }

  call(x: Operand): Tensor {
    return called(this.weight, () => {
      const product = matmul(x, inTypeOf(x, this.weight), { transposeB: true });
      return this.bias === undefined ? product : product.add(inTypeOf(x, this.bias));
    });
  }
}

export interface EmbeddingOptions {
  readonly init?: Init;
  readonly dtype?: DType;
}
export class Embedding {
  readonly weight: Parameter;

  constructor(count: number, width: number, options: EmbeddingOptions = {}) {
    const owner = `nn.Embedding(${count}, ${width})`;
    sizes(owner, count, width);
    this.weight = new Parameter([count, width], { init: options.init ?? init.normal(0.02), dtype: options.dtype }, owner);
  }

  call(ids: Operand): Tensor {
    return called(this.weight, () => embedding(this.weight, ids));
  }
  /** x times the transposed table: an output layer tied to the embedding. */
  logits(x: Operand): Tensor {
    return inModule(moduleOf(this.weight), () => matmul(x, inTypeOf(x, this.weight), { transposeB: true }));
  }
}

export interface NormOptions {
  /** By default 1e-5 for LayerNorm and 1e-6 for RMSNorm. */
  readonly eps?: number;
  readonly dtype?: DType;
}
export class LayerNorm {
  readonly weight: Parameter;
  readonly bias: Parameter;
  private readonly eps: number;

  constructor(width: number, options: NormOptions = {}) {
    const owner = `nn.LayerNorm(${width})`;
    sizes(owner, width);
    this.weight = new Parameter([width], { init: init.ones(), dtype: options.dtype, decay: false }, owner);
    this.bias = new Parameter([width], { init: init.zeros(), dtype: options.dtype, decay: false }, owner);
    this.eps = options.eps ?? 1e-5;
  }

  call(x: Operand): Tensor {
    return called(this.weight, () => layerNorm(x, { weight: inTypeOf(x, this.weight), bias: inTypeOf(x, this.bias), eps: this.eps }));
  }
}

export class RMSNorm {
  readonly weight: Parameter;
  private readonly eps: number;

  constructor(width: number, options: NormOptions = {}) {
    const owner = `nn.RMSNorm(${width})`;
    sizes(owner, width);
    this.weight = new Parameter([width], { init: init.ones(), dtype: options.dtype, decay: false }, owner);
    this.eps = options.eps ?? 1e-6;
  }

  call(x: Operand): Tensor {
    return called(this.weight, () => rmsNorm(x, { weight: inTypeOf(x, this.weight), eps: this.eps }));
  }
}

/**
 * In a training graph, zeroes each element with probability `rate` and scales up the others to keep the mean; otherwise
 * the identity.
 */
export class Dropout {
  constructor(private readonly rate = 0.1) {
    if (!(rate >= 0 && rate < 1)) throw new UsageError(`nn.Dropout: a rate of ${rate} is not in [0, 1)`);
  }

  call(x: Tensor): Tensor {
    if (this.rate === 0 || !currentGraph("nn.Dropout").isTraining) return x;
    return where(greaterEqual(randomUniform(x.shape), this.rate), x.div(1 - this.rate), 0);
  }
}

export interface ConvOptions {
  readonly stride?: number;
  readonly padding?: number;
  readonly dilation?: number;
  readonly groups?: number;
  readonly bias?: boolean;
  readonly dtype?: DType;
}

// Creates the weight and the bias of a convolution over this many axes.
function convolution(axes: 1 | 2, inSize: number, outSize: number, kernel: number, options: ConvOptions): { weight: Parameter; bias?: Parameter } {
  const owner = `nn.Conv${axes}d(${inSize}, ${outSize}, ${kernel})`;
  const groups = asCount(options.groups ?? 1, `${owner}: groups`, 1);
  sizes(owner, inSize, outSize, kernel);
  const channels = Math.floor(inSize / groups);
  const initial = fanIn(channels * kernel ** axes);
  const { dtype } = options;
  const weight = new Parameter([outSize, channels, ...Array<number>(axes).fill(kernel)], { init: initial, dtype }, owner);
  return (options.bias ?? true) ? { weight, bias: new Parameter([outSize], { init: initial, dtype, decay: false }, owner) } : { weight };
}

export class Conv1d {
  readonly weight: Parameter;
  readonly bias?: Parameter;
  private readonly attrs: { stride?: number; padding?: number; dilation?: number; groups?: number };

  constructor(inSize: number, outSize: number, kernel: number, options: ConvOptions = {}) {
    const made = convolution(1, inSize, outSize, kernel, options);
    this.weight = made.weight;
    if (made.bias !== undefined) this.bias = made.bias;
    const { stride = 1, padding = 0, dilation = 1, groups = 1 } = options;
    this.attrs = { stride, padding, dilation, groups };
  }

  call(x: Operand): Tensor {
    return called(this.weight, () => conv1d(x, inTypeOf(x, this.weight), { ...this.attrs, bias: this.bias && inTypeOf(x, this.bias) }));
  }
}

export class Conv2d {
  readonly weight: Parameter;
  readonly bias?: Parameter;
  private readonly attrs: { stride: number[]; padding: number[]; dilation: number[]; groups: number };

  constructor(inSize: number, outSize: number, kernel: number, options: ConvOptions = {}) {
    const made = convolution(2, inSize, outSize, kernel, options);
    this.weight = made.weight;
    if (made.bias !== undefined) this.bias = made.bias;
    const { stride = 1, padding = 0, dilation = 1, groups = 1 } = options;
    this.attrs = { stride: [stride, stride], padding: [padding, padding], dilation: [dilation, dilation], groups };
  }

  call(x: Operand): Tensor {
    return called(this.weight, () => conv2d(x, inTypeOf(x, this.weight), { ...this.attrs, bias: this.bias && inTypeOf(x, this.bias) }));
  }
}

/** A list of modules: nn.stack(layers, () => new Block(width)) */
export function stack<T>(count: number, make: (number: number) => T): T[] {
  return Array.from({ length: asCount(count, "nn.stack: a count") }, (_, number) => make(number));
}
