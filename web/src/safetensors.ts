import { asBytes } from "./checks.js";
import { FileError, UsageError } from "./errors.js";
import { asIndex, asList, asObject, asText, parseJson } from "./json_fields.js";
import { type DType, type Tensor, byteCount, bytesOf, checkTensor, fromBytes } from "./tensor.js";

// safetensors files: the length of a JSON header as 8 bytes, the header, and the tensors' bytes.

export interface SafeTensors {
  readonly tensors: ReadonlyMap<string, Tensor>;
  readonly metadata: ReadonlyMap<string, string>;
}

const typeOf: Readonly<Record<string, DType>> = { F32: "f32", F16: "f16", BF16: "bf16", I32: "i32", U32: "u32", I8: "i8" };
const nameOf: Readonly<Record<DType, string | undefined>> = {
  f32: "F32",
  f16: "F16",
  bf16: "BF16",
  i32: "I32",
  u32: "U32",
  boolean: "U32",
  i8: "I8",
  i4: undefined,
};
const lengthBytes = 8;

/** The header and the bytes after it, in a file that begins with the header's length. */
export function splitHeader(bytes: Uint8Array, start: number): { header: string; rest: Uint8Array } {
  const place = start + lengthBytes;
  if (bytes.length < place) throw new FileError("the header is cut off");
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(start, true));
  if (length > bytes.length - place) throw new FileError("the header is cut off");
  return { header: new TextDecoder().decode(bytes.subarray(place, place + length)), rest: bytes.subarray(place + length) };
}

/** Throws FileError for a file that is damaged, or that has a type which programs do not support. */
export function readSafetensors(bytes: Uint8Array): SafeTensors {
  const { header, rest } = splitHeader(asBytes(bytes, "a safetensors file"), 0);
  const tensors = new Map<string, Tensor>();
  const metadata = new Map<string, string>();
  for (const [name, value] of Object.entries(asObject(parseJson(header, "the header of the safetensors file"), "the header of the safetensors file"))) {
    const row = asObject(value, name);
    if (name === "__metadata__") {
      for (const [key, text] of Object.entries(row)) metadata.set(key, asText(text, key));
      continue;
    }
    const dtype = typeOf[asText(row["dtype"], `the type of ${name}`)];
    if (dtype === undefined) throw new FileError(`${name} is of type ${row["dtype"]}, which programs do not have`);
    const shape = asList(row["shape"], `the shape of ${name}`).map((size) => asIndex(size, `the shape of ${name}`));
    const [from, to] = asList(row["data_offsets"], `the offsets of ${name}`).map((at) => asIndex(at, `the offsets of ${name}`));
    if (from === undefined || to === undefined || to < from || to > rest.length || to - from !== byteCount(dtype, shape))
      throw new FileError(`${name} is not inside the file, or its length does not match its shape`);
    tensors.set(name, fromBytes(dtype, shape, rest.subarray(from, to)));
  }
  return { tensors, metadata };
}

export function writeSafetensors(
  tensors: ReadonlyMap<string, Tensor>,
  metadata: ReadonlyMap<string, string> = new Map(),
): Uint8Array<ArrayBuffer> {
  const rows: Record<string, unknown> = {};
  if (metadata.size > 0) rows["__metadata__"] = Object.fromEntries(metadata);
  let end = 0;
  for (const [name, tensor] of tensors) {
    checkTensor(tensor, name);
    const dtype = nameOf[tensor.dtype];
    if (dtype === undefined) throw new UsageError(`a safetensors file cannot hold ${tensor.dtype} tensors`);
    rows[name] = { dtype, shape: tensor.shape, data_offsets: [end, end + tensor.data.byteLength] };
    end += tensor.data.byteLength;
  }
  const text = JSON.stringify(rows);
  const encoded = new TextEncoder().encode(text);
  const headerLength = Math.ceil(encoded.length / 8) * 8; // so that the tensors are aligned
  const file = new Uint8Array(lengthBytes + headerLength + end).fill(0x20, lengthBytes, lengthBytes + headerLength);
  new DataView(file.buffer).setBigUint64(0, BigInt(headerLength), true);
  file.set(encoded, lengthBytes);
  let place = lengthBytes + headerLength;
  for (const tensor of tensors.values()) {
    file.set(bytesOf(tensor.data), place);
    place += tensor.data.byteLength;
  }
  return file;
}
