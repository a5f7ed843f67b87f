import { UsageError } from "./errors.js";
import { f32ToBf16, f32ToF16 } from "./float16.js";
import { SplitMix } from "./random.js";
import { type DType, type Tensor, byteCount, elementCount, fromBytes } from "./tensor.js";

export interface Init {
  readonly kind: "constant" | "uniform" | "normal";
  readonly mean: number;
  readonly width: number;
}

/** The state of random ops, which starts as the seed. */
const randomState = "rng";

function hash(text: string): bigint {
  let value = 0xcbf29ce484222325n; // FNV-1a
  for (const byte of new TextEncoder().encode(text)) value = BigInt.asUintN(64, (value ^ BigInt(byte)) * 0x100000001b3n);
  return value;
}

function setter(target: Tensor): (i: number, value: number) => void {
  const { dtype, data } = target;
  switch (dtype) {
    case "f16":
      return (i, value) => (data[i] = f32ToF16(value));
    case "bf16":
      return (i, value) => (data[i] = f32ToBf16(value));
    case "i32":
    case "u32":
    case "f32":
      return (i, value) => (data[i] = value);
    case "boolean":
      return (i, value) => (data[i] = value !== 0 ? 1 : 0);
    default:
      throw new UsageError(`elements of a ${dtype} tensor cannot be written one by one`);
  }
}

/** The initial values of a parameter or state: those of the C++ library for the same seed. */
export function initialValues(name: string, dtype: DType, shape: readonly number[], init: Init, seed: bigint): Tensor {
  const values = fromBytes(dtype, shape, new Uint8Array(byteCount(dtype, shape)));
  const count = elementCount(shape);
  if (name === randomState) {
    values.data[0] = Number(seed & 0xffffffffn);
    return values;
  }
  if (init.kind === "constant" && init.mean === 0) return values;
  const set = setter(values);
  const generator = new SplitMix(hash(name) ^ BigInt.asUintN(64, seed * 0x2545f4914f6cdd1dn));
  for (let i = 0; i < count; ++i) {
    if (init.kind === "constant") {
      set(i, init.mean);
      continue;
    }
    const u = generator.uniform();
    const spread =
      init.kind === "uniform" ? 2 * u - 1 : Math.sqrt(-2 * Math.log(u)) * Math.cos(2 * Math.PI * generator.uniform());
    set(i, init.mean + init.width * spread);
  }
  return values;
}
