import { FileError } from "./errors.js";

// The container of a program file: a header, a table of typed sections, the sections. docs/program-files.md describes
// the layout.

/** The format that this version reads. */
export const programFormat = 5;
/** The version of this host. */
export const hostVersion = [0, 1, 0] as const;

const magic = "JERBOAPF";
const headerBytes = 24;
const rowBytes = 32;
const requiredFlag = 1;
const knownKinds: readonly string[] = ["NEED", "PROG", "CPU ", "GPU ", "INDX", "RATE", "CHCK", "DATA"];
/** Reserved for steps that repeat. */
const loops = "LOOP";

export interface Section {
  readonly kind: string;
  readonly required: boolean;
  readonly bytes: Uint8Array;
}

const crcTable = Uint32Array.from({ length: 256 }, (_, i) => {
  let value = i;
  for (let bit = 0; bit < 8; ++bit) value = (value >>> 1) ^ ((value & 1) !== 0 ? 0xedb88320 : 0);
  return value;
});

/** CRC-32 as in gzip and PNG, over consecutive pieces. */
export function crc32(...pieces: readonly Uint8Array[]): number {
  let value = 0xffffffff;
  for (const piece of pieces) for (const byte of piece) value = crcTable[(value ^ byte) & 0xff]! ^ (value >>> 8);
  return ~value >>> 0;
}

// Keeps printable characters only.
function textOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "?")).join("");
}

function versionText(version: readonly number[]): string {
  return version.join(".");
}

function checkFormat(bytes: Uint8Array, view: DataView): void {
  const found = textOf(bytes.subarray(0, magic.length));
  const other = (format: number | string, remedy: string) =>
    new FileError(`a program file of format ${format}, but this host (${versionText(hostVersion)}) reads format ${programFormat}: ${remedy}`);
  if (/^JERBOAP[0-9]/.test(found)) throw other(found[7]!, "export it again");
  if (found !== magic) throw new FileError("not a Jerboa program file");
  if (bytes.length < headerBytes) throw new FileError("the header is cut off");
  const format = view.getUint32(8, true);
  if (format !== programFormat) throw other(format, format > programFormat ? "use a later host" : "export it again");
  const number = view.getUint32(12, true);
  const least = [number >>> 16, (number >>> 8) & 0xff, number & 0xff];
  const hostNumber = (hostVersion[0] << 16) | (hostVersion[1] << 8) | hostVersion[2];
  if (number > hostNumber) throw new FileError(`the program needs version ${versionText(least)} of the host or later, but this is ${versionText(hostVersion)}`);
}

/**
 * The sections that this version knows, each at most once. Throws FileError where the file is damaged, of another
 * format, for a later host or needs a section that is unknown.
 */
export function readSections(bytes: Uint8Array): Section[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  checkFormat(bytes, view);
  const count = view.getUint32(16, true);
  if (count > (bytes.length - headerBytes) / rowBytes) throw new FileError("the table of sections is cut off");
  let end = headerBytes + count * rowBytes;
  if (crc32(bytes.subarray(0, headerBytes - 4), bytes.subarray(headerBytes, end)) !== view.getUint32(headerBytes - 4, true))
    throw new FileError("the header is damaged: its checksum does not match");
  const sections: Section[] = [];
  for (let row = headerBytes; row < headerBytes + count * rowBytes; row += rowBytes) {
    const kind = textOf(bytes.subarray(row, row + 4));
    const flags = view.getUint32(row + 4, true);
    const place = Number(view.getBigUint64(row + 8, true));
    const length = Number(view.getBigUint64(row + 16, true));
    if ((flags & ~requiredFlag) !== 0) throw new FileError(`the section ${kind} has flags that this host does not know`);
    if (place < end || place > bytes.length || length > bytes.length - place) throw new FileError(`the section ${kind} is cut off`);
    end = place + length;
    const content = bytes.subarray(place, end);
    if (crc32(content) !== view.getUint32(row + 24, true)) throw new FileError(`the section ${kind} is damaged: its checksum does not match`);
    if (kind === loops) throw new FileError(`the program has steps that repeat (section ${kind}), which this host (${versionText(hostVersion)}) cannot run`);
    const required = flags !== 0;
    if (!knownKinds.includes(kind)) {
      if (required) throw new FileError(`the program needs the section ${kind}, which this host (${versionText(hostVersion)}) does not know`);
      continue;
    }
    if (sections.some((other) => other.kind === kind)) throw new FileError(`the program has the section ${kind} twice`);
    sections.push({ kind, required, bytes: content });
  }
  return sections;
}

/** Writes a file with these sections, for tools and tests. */
export function writeSections(sections: readonly Section[], leastHost: readonly number[] = hostVersion): Uint8Array {
  const aligned = (bytes: number) => Math.ceil(bytes / 8) * 8;
  const places: number[] = [];
  let end = headerBytes + sections.length * rowBytes;
  for (const section of sections) {
    places.push(aligned(end));
    end = aligned(end) + section.bytes.length;
  }
  const file = new Uint8Array(end);
  const view = new DataView(file.buffer);
  file.set(new TextEncoder().encode(magic));
  view.setUint32(8, programFormat, true);
  view.setUint32(12, (leastHost[0]! << 16) | (leastHost[1]! << 8) | leastHost[2]!, true);
  view.setUint32(16, sections.length, true);
  sections.forEach((section, number) => {
    const row = headerBytes + number * rowBytes;
    file.set(new TextEncoder().encode(section.kind), row);
    view.setUint32(row + 4, section.required ? requiredFlag : 0, true);
    view.setBigUint64(row + 8, BigInt(places[number]!), true);
    view.setBigUint64(row + 16, BigInt(section.bytes.length), true);
    view.setUint32(row + 24, crc32(section.bytes), true);
    file.set(section.bytes, places[number]!);
  });
  const table = file.subarray(headerBytes, headerBytes + sections.length * rowBytes);
  view.setUint32(headerBytes - 4, crc32(file.subarray(0, headerBytes - 4), table), true);
  return file;
}
