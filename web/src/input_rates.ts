import { UsageError } from "./errors.js";
import type { Tensor } from "./tensor.js";

/** An input that is the learning rate of an optimizer. */
export interface InputRate {
  readonly input: string;
  /** A custom optimizer may want that. */
  readonly mayBeNegative: boolean;
}

/** Throws UsageError that names the entry and the input unless each rate is finite and as large as it must be. */
export function checkInputRates(entry: string, rates: readonly InputRate[], inputs: ReadonlyMap<string, Tensor>): void {
  for (const { input, mayBeNegative } of rates) {
    const rate = inputs.get(input)!.data[0]!;
    if (!Number.isFinite(rate) || (rate < 0 && !mayBeNegative))
      throw new UsageError(`entry ${entry}: input ${input}: a learning rate must be ${mayBeNegative ? "" : "0 or more and "}finite, not ${rate}`);
  }
}
