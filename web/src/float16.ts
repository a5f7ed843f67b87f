// 16-bit floats as bits, rounded to nearest, ties to even. NaN is not handled: initial values contain none.

const floats = new Float32Array(1);
const words = new Uint32Array(floats.buffer);

function bitsOf(value: number): number {
  floats[0] = value;
  return words[0]!;
}

export function f32ToBf16(value: number): number {
  const bits = bitsOf(value);
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export function f32ToF16(value: number): number {
  const bits = bitsOf(value);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // 65520 and above
  if (magnitude >= 0x38800000) {
    // 2^-14: a normal half
    const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
    return sign | ((rounded - 0x38000000) >>> 13);
  }
  floats[0] = value;
  const units = Math.abs(floats[0]) * 2 ** 24; // in units of the smallest subnormal; exact
  const below = Math.floor(units);
  const rest = units - below;
  return sign | (rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below);
}

export function f16ToF32(half: number): number {
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  const sign = half & 0x8000 ? -1 : 1;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function bf16ToF32(bits: number): number {
  words[0] = bits << 16;
  return floats[0]!;
}
