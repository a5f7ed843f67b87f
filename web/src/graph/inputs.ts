import { described } from "../checks.js";
import { UsageError, listed } from "../errors.js";
import { type DType, type Tensor as HostTensor, checkTensor, typeText } from "../tensor.js";
import { type Dim, type Tensor, applied } from "./tracing.js";

/** An input that a graph is compiled for. Sizes may be symbols, whose bounds are in `symbols`. */
export interface InputSpec {
  readonly shape: readonly Dim[];
  readonly dtype?: DType;
  readonly symbols?: Readonly<Record<string, number>>;
}
export type InputSpecs = Readonly<Record<string, InputSpec>>;

/** The data of one step, by input name. */
export type Batch = Readonly<Record<string, HostTensor>>;

/** The inputs of a graph while it is traced, by name. */
export type Inputs = Readonly<Record<string, Tensor>>;

/** The specs of existing data. */
export function specsOf(batch: Batch): InputSpecs {
  if (typeof batch !== "object" || batch === null || Array.isArray(batch)) throw new UsageError(`a batch is an object of tensors by name, not ${described(batch)}`);
  const entries = Object.entries(batch);
  if (entries.length === 0) throw new UsageError("the batch is empty: it holds no tensor");
  for (const [name, value] of entries) {
    checkTensor(value, `${name} of the batch`);
    if (value.data.length === 0) throw new UsageError(`the batch is empty: ${name} is ${typeText(value.dtype, value.shape)}`);
  }
  return Object.fromEntries(entries.map(([name, { dtype, shape }]) => [name, { dtype, shape }]));
}

/** "ids:i32[8, 128] targets:i32[8, 128]": identifies a compiled step. */
export function signature(specs: InputSpecs): string {
  return Object.entries(specs)
    .map(([name, { shape, dtype = "f32" }]) => `${name}:${dtype}[${shape.join(", ")}]`)
    .sort()
    .join(" ");
}

/** Creates the inputs in the graph that is being traced. Reading another name is an error that lists them. */
export function declareInputs<I extends Inputs>(specs: InputSpecs): I {
  const names = Object.keys(specs).sort(); // sorted, as in C++
  const inputs = Object.fromEntries(names.map((name) => [name, applied("input", [], { name, ...specs[name] })]));
  return new Proxy(inputs, {
    get: (target, name) => {
      if (typeof name === "symbol" || name in target) return Reflect.get(target, name) as unknown;
      throw new UsageError(`no input is named ${name}; available: ${listed(names)}`);
    },
  }) as I;
}
