import { type Dim, type SymbolValues, evaluateShape } from "./dim.js";
import { FileError, UsageError } from "./errors.js";
import type { Tensor } from "./tensor.js";

/** A part of a list of elements, in strided form. */
export interface IndexView {
  readonly shape: readonly Dim[];
  readonly offset: Dim;
  readonly strides: readonly Dim[];
}

/** Elements of an input that an op uses as indices into another tensor. */
export interface InputIndices {
  readonly input: string;
  /** Each view selects from the one before, the first from the input; empty: all elements. */
  readonly views: readonly IndexView[];
  /** Indices must be less than this. */
  readonly limit: Dim;
  readonly negativeIsNone: boolean;
  readonly op: string;
  /** The user's line, or empty. */
  readonly site: string;
}

/** The first and the last element that a strided array covers; undefined if it is empty. */
export function reach(offset: Dim, strides: readonly Dim[], shape: readonly number[], symbols: SymbolValues): [number, number] | undefined {
  if (shape.includes(0)) return undefined;
  let first = offset.evaluate(symbols);
  let last = first;
  strides.forEach((stride, axis) => {
    const far = stride.evaluate(symbols) * (shape[axis]! - 1);
    if (far < 0) first += far;
    else last += far;
  });
  return [first, last];
}

// The elements of a view; throws FileError if one is outside the list.
function part(values: ArrayLike<number>, view: IndexView, input: string, symbols: SymbolValues): number[] {
  const shape = evaluateShape(view.shape, symbols);
  if (shape.some((size) => size < 0)) throw new FileError(`indices of ${input} cannot be [${shape.join(", ")}]`);
  const range = reach(view.offset, view.strides, shape, symbols);
  if (range === undefined) return [];
  if (!(range[0] >= 0 && range[1] < values.length)) throw new FileError(`indices are read outside of ${input}`);
  const strides = view.strides.map((stride) => stride.evaluate(symbols));
  const elements: number[] = [];
  const visit = (axis: number, place: number) => {
    if (axis === shape.length) elements.push(values[place]!);
    else for (let i = 0; i < shape[axis]!; i++) visit(axis + 1, place + i * strides[axis]!);
  };
  visit(0, view.offset.evaluate(symbols));
  return elements;
}

/** "input targets holds 77, which is out of range for cross_entropy: indices go from 0 to 2 (model.ts:17)" */
export function outOfRange(value: number, tensor: string, op: string, limit: number, site: string): UsageError {
  const where = site === "" ? "" : ` (${site})`;
  return new UsageError(`${tensor} holds ${value}, which is out of range for ${op}: indices go from 0 to ${limit - 1}${where}`);
}

/** Throws UsageError that names the input, the value, the bound and the user's line. */
export function checkInputIndices(all: readonly InputIndices[], inputs: ReadonlyMap<string, Tensor>, symbols: SymbolValues): void {
  for (const indices of all) {
    let values: ArrayLike<number> = inputs.get(indices.input)!.data;
    for (const view of indices.views) values = part(values, view, indices.input, symbols);
    const limit = indices.limit.evaluate(symbols);
    for (let i = 0; i < values.length; i++) {
      const value = values[i]!;
      if (value >= limit || (value < 0 && !indices.negativeIsNone))
        throw outOfRange(value, `input ${indices.input}`, indices.op, limit, indices.site);
    }
  }
}
