/**
 * SplitMix64, as in the C++ library: the same numbers from the same seed. 64-bit values are pairs of 32-bit ones,
 * because BigInt is slow.
 */
export class SplitMix {
  private high: number;
  private low: number;

  constructor(seed: bigint) {
    const state = BigInt.asUintN(64, seed);
    this.high = Number(state >> 32n);
    this.low = Number(state & 0xffffffffn);
  }

  /** The next 64 bits. */
  next(): bigint {
    this.step();
    return (BigInt(this.mixedHigh) << 32n) | BigInt(this.mixedLow);
  }

  /** In (0, 1]. */
  uniform(): number {
    this.step();
    return (this.mixedHigh * 0x200000 + (this.mixedLow >>> 11) + 1) * 2 ** -53;
  }

  /** From 0 to bound - 1. */
  below(bound: number): number {
    return Number(this.next() % BigInt(bound));
  }

  private mixedHigh = 0;
  private mixedLow = 0;

  private step(): void {
    const low = this.low + 0x7f4a7c15;
    this.high = (this.high + 0x9e3779b9 + (low > 0xffffffff ? 1 : 0)) >>> 0;
    this.low = low >>> 0;
    let high = this.high;
    let rest = this.low;
    const mix = (shift: number, factorHigh: number, factorLow: number) => {
      rest = (rest ^ ((rest >>> shift) | (high << (32 - shift)))) >>> 0;
      high = (high ^ (high >>> shift)) >>> 0;
      const crossed = (Math.imul(high, factorLow) + Math.imul(rest, factorHigh)) >>> 0;
      high = (crossed + upperProduct(rest, factorLow)) >>> 0;
      rest = Math.imul(rest, factorLow) >>> 0;
    };
    mix(30, 0xbf58476d, 0x1ce4e5b9);
    mix(27, 0x94d049bb, 0x133111eb);
    this.mixedLow = (rest ^ ((rest >>> 31) | (high << 1))) >>> 0;
    this.mixedHigh = (high ^ (high >>> 31)) >>> 0;
  }
}

/** The upper 32 bits of the product of two 32-bit numbers. */
function upperProduct(a: number, b: number): number {
  const aLow = a & 0xffff;
  const aHigh = a >>> 16;
  const bLow = b & 0xffff;
  const bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return aHigh * bHigh + Math.floor(middle / 0x10000) + Math.floor(other / 0x10000);
}
