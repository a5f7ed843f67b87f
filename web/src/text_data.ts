import { UsageError } from "./errors.js";
import { SplitMix } from "./random.js";
import { type Tensor, tensor } from "./tensor.js";

export interface TextDataOptions {
  readonly batch: number;
  readonly length: number;
  readonly seed?: number;
}

/** Windows of a text's bytes at random offsets, the same as TextData of the C++ library for the same seed. */
export class TextData {
  constructor(
    private readonly bytes: Uint8Array,
    private readonly options: TextDataOptions,
  ) {
    if (bytes.length < options.length + 1)
      throw new UsageError(`${bytes.length} bytes are too few for a window of ${options.length} and its targets`);
  }

  get size(): number {
    return this.bytes.length;
  }

  /** The targets are the ids shifted by one byte. A batch depends only on its number and the seed. */
  batch(number: number): { ids: Tensor; targets: Tensor } {
    const { batch, length, seed = 0 } = this.options;
    const random = new SplitMix(BigInt(seed) * 0x2545f4914f6cdd1dn + BigInt(number));
    random.next(); // consecutive numbers start from consecutive states
    const ids = new Int32Array(batch * length);
    const targets = new Int32Array(batch * length);
    for (let row = 0; row < batch; ++row) {
      const start = random.below(this.bytes.length - length);
      for (let t = 0; t < length; ++t) {
        ids[row * length + t] = this.bytes[start + t]!;
        targets[row * length + t] = this.bytes[start + t + 1]!;
      }
    }
    return { ids: tensor(ids, [batch, length]), targets: tensor(targets, [batch, length]) };
  }
}
