import { asBytes, asCount, asSeed } from "./checks.js";
import { UsageError } from "./errors.js";
import { SplitMix } from "./random.js";
import { type Tensor, tensor } from "./tensor.js";

export interface TextDataOptions {
  readonly batch: number;
  readonly length: number;
  readonly seed?: number;
}

/** Windows of a text's bytes at random offsets, the same as those of TextData in the C++ library for the same seed. */
export class TextData {
  private readonly bytes: Uint8Array;
  private readonly batchSize: number;
  private readonly length: number;
  private readonly seed: bigint;

  constructor(bytes: Uint8Array, options: TextDataOptions) {
    this.bytes = asBytes(bytes, "a text");
    this.batchSize = asCount(options?.batch, "a batch", 1);
    this.length = asCount(options?.length, "a window's length", 1);
    this.seed = asSeed(options?.seed ?? 0);
    if (bytes.length < this.length + 1)
      throw new UsageError(`${bytes.length} bytes are too few for a window of ${this.length} and its targets`);
  }

  get size(): number {
    return this.bytes.length;
  }

  /** The targets are the ids shifted by one byte. A batch depends only on its number and the seed. */
  batch(number: number): { ids: Tensor; targets: Tensor } {
    const { batchSize: batch, length } = this;
    const random = new SplitMix(this.seed * 0x2545f4914f6cdd1dn + BigInt(asCount(number, "a batch's number")));
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
