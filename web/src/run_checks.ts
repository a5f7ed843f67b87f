import type { Dim, SymbolValues } from "./dim.js";
import { NotFiniteError } from "./errors.js";
import { outOfRange } from "./input_indices.js";
import type { Readable, Step } from "./program_file.js";
import type { RunResult } from "./result.js";
import type { TensorData } from "./tensor.js";

// Checks of the tensors that a run computes, in programs that were compiled with them. They are outputs that the host
// reads after a run; a run that fails a check changes no parameter and no state.

/** The output with 1 where a tensor is finite, in the order of the checks. */
export const finiteFlags = "check/finite";
/** The output with the smallest and the largest index of each check. */
export const indexExtremes = "check/indices";
/** In a kernel's label, the suffix of a tensor's name if the kernel stores the tensor's check but not the tensor. */
const checkSuffix = ".finite";

/** A tensor that must be finite. */
export interface FiniteCheck {
  readonly name: string;
  readonly op: string;
  /** The user's line, or empty. */
  readonly site: string;
}

/** Indices that the program computes. */
export interface IndexCheck {
  readonly name: string;
  /** The op that uses them, and the user's line. */
  readonly op: string;
  readonly site: string;
  /** Indices must be below it. */
  readonly limit: Dim;
  readonly negativeIsNone: boolean;
}

/** The checks of an entry's computed tensors, and the outputs that hold their results. */
export interface RunChecks {
  readonly finite: readonly FiniteCheck[];
  readonly indices: readonly IndexCheck[];
  readonly outputs: readonly Readable[];
}

const inParentheses = (site: string) => (site === "" ? "" : ` (${site})`);

const leaves: Readonly<Record<string, string>> = { tensor_input: "an input", param_input: "a parameter", state_input: "a state", constant: "a constant" };

// The label of the kernel that computes a tensor, which lists the tensors it stores; undefined if it is not known.
function kernelOf(steps: readonly Step[], tensor: string): string | undefined {
  const labels = steps.flatMap((step) => step.label.split(" + "));
  return labels.find((label) => label.split(/[ ,]+/).some((word) => word === tensor || word === tensor + checkSuffix));
}

function notFinite({ name, op, site }: FiniteCheck, steps: readonly Step[]): NotFiniteError {
  const leaf = leaves[op];
  if (leaf !== undefined) return new NotFiniteError(`${name} holds NaN or infinity before the run: it is ${leaf}${inParentheses(site)}`);
  const kernel = kernelOf(steps, name);
  const where = kernel === undefined ? "" : ` in kernel '${kernel}'`;
  return new NotFiniteError(`${name} is not finite: ${op} produced NaN or infinity${where}${inParentheses(site)}`);
}

function checkIndices(checks: readonly IndexCheck[], extremes: TensorData, symbols: SymbolValues): void {
  checks.forEach(({ name, op, site, limit, negativeIsNone }, i) => {
    const smallest = extremes[2 * i]!;
    const largest = extremes[2 * i + 1]!;
    if (smallest > largest) return; // there are none
    const isLow = smallest < 0 && !negativeIsNone;
    const most = limit.evaluate(symbols);
    if (isLow || largest >= most) throw outOfRange(isLow ? smallest : largest, name, op, most, site);
  });
}

/** Waits for a run, and throws NotFiniteError or UsageError that names the first tensor that fails a check. */
export async function throwFailedChecks(checks: RunChecks, steps: readonly Step[], result: RunResult, symbols: SymbolValues): Promise<void> {
  // Indices come first: an element read from the wrong place may be the one that is not finite.
  if (checks.indices.length > 0) checkIndices(checks.indices, (await result.read(indexExtremes)).data, symbols);
  if (checks.finite.length === 0) return;
  const flags = (await result.read(finiteFlags)).data;
  const failed = checks.finite.find((_, i) => flags[i] === 0);
  if (failed !== undefined) throw notFinite(failed, steps);
}
