import { described } from "../checks.js";
import { GraphError, UsageError } from "../errors.js";
import type { Init } from "../initialize.js";
import type { DType } from "../tensor.js";
import { type Tensor, applied, callSite } from "./tracing.js";

/** Initial values, which the host draws from the session's seed. */
export const init = {
  zeros: (): Init => ({ kind: "constant", mean: 0, width: 0 }),
  ones: (): Init => ({ kind: "constant", mean: 1, width: 0 }),
  constant: (value: number): Init => ({ kind: "constant", mean: value, width: 0 }),
  normal: (deviation: number): Init => ({ kind: "normal", mean: 0, width: deviation }),
  uniform: (bound: number): Init => ({ kind: "uniform", mean: 0, width: bound }),
};

export interface ParameterOptions {
  /** By default zeros. */
  readonly init?: Init | undefined;
  /** f32, f16 or bf16; by default f32. */
  readonly dtype?: DType | undefined;
  /** Whether weight decay applies; by default true. */
  readonly decay?: boolean | undefined;
  readonly trainable?: boolean | undefined;
}

/** The description of a parameter. Its path in the model, "blocks.0.qkv.weight", is its name. */
export class Parameter {
  /** Empty until a Trainer takes the model. */
  path = "";
  private readonly site = callSite();

  constructor(
    readonly shape: readonly number[],
    readonly options: ParameterOptions = {},
    /** The module that it belongs to, for errors. */
    readonly owner = "a parameter",
  ) {}

  /** Its tensor in the graph that is being traced. */
  tensor(): Tensor {
    if (this.path === "")
      throw new GraphError(`${this.owner}${this.site === "" ? "" : ` made at ${this.site}`} has no name: keep it in a field of the model, and hand that to a Trainer or to assignPaths`);
    const { init: initial, dtype, decay, trainable } = this.options;
    return applied("parameter", [], { name: this.path, shape: this.shape, init: initial, dtype, decay, trainable });
  }
}

/**
 * Gives every parameter of a model its path, which is its name from then on, and returns them in order. Models are plain
 * objects: their fields are parameters, modules, or lists of those. A parameter that two fields share has the name of the
 * first.
 */
export function assignPaths(model: object): Parameter[] {
  if (typeof model !== "object" || model === null) throw new UsageError(`a model is an object of modules, not ${described(model)}`);
  const found = new Set<Parameter>();
  const seen = new Set<object>();
  const visit = (value: unknown, path: string) => {
    if (typeof value !== "object" || value === null || ArrayBuffer.isView(value) || seen.has(value)) return;
    seen.add(value);
    if (value instanceof Parameter) {
      value.path = path;
      found.add(value);
      return;
    }
    for (const [name, field] of Object.entries(value)) visit(field, path === "" ? name : `${path}.${name}`);
  };
  visit(model, "");
  return [...found];
}
