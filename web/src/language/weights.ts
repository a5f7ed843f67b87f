import { readBundle, writeBundle } from "../compiler/bundle.js";
import { type CompilerClient, Moved } from "../compiler/client.js";
import type { Session } from "../session.js";
import type { ModelFolder } from "./model_cache.js";
import type { ModelSource } from "./source.js";

// Moves parameters from a checkpoint to the device, one after another and large ones in parts, so that only a few parts
// are in memory at a time.

/** The location of a tensor in the checkpoint. */
export interface TensorPlace {
  readonly name: string;
  readonly file: string;
  readonly begin: number;
  readonly bytes: number;
}

/** The tensors that a parameter is made from; with rows, it can be made a few rows at a time. */
export interface ParameterRead {
  readonly name: string;
  readonly tensors: readonly TensorPlace[];
  readonly rows: number;
}

export interface WeightsJob {
  readonly client: CompilerClient;
  /** The model's handle in the compiler. */
  readonly language: number;
  readonly source: ModelSource;
  readonly folder: ModelFolder | undefined;
  readonly session: Session;
  readonly signal: AbortSignal | undefined;
  /** Called with the number of bytes that are done. */
  readonly onBytes: (bytes: number, total: number) => void;
}

/** Some rows of a parameter, or all of it. */
interface Part {
  readonly key: string;
  readonly read: ParameterRead;
  /** 0: the whole parameter. */
  readonly rows: number;
  readonly firstRow: number;
  readonly ranges: readonly { readonly file: string; readonly begin: number; readonly end: number }[];
}

const partBytes = 16 << 20;

function partsOf(read: ParameterRead, index: number): Part[] {
  const whole = read.tensors.map(({ file, begin, bytes }) => ({ file, begin, end: begin + bytes }));
  const bytes = read.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  if (read.rows === 0 || bytes <= partBytes) return [{ key: `${index}`, read, rows: 0, firstRow: 0, ranges: whole }];
  const { file, begin, bytes: size } = read.tensors[0]!;
  const rowBytes = size / read.rows;
  // Whole words of every type: 32 rows of int4 scales are.
  const rows = Math.max(32, Math.floor(partBytes / rowBytes / 32) * 32);
  const parts: Part[] = [];
  for (let firstRow = 0; firstRow < read.rows; firstRow += rows) {
    const count = Math.min(rows, read.rows - firstRow);
    const from = begin + firstRow * rowBytes;
    parts.push({ key: `${index}-${firstRow}`, read, rows: count, firstRow, ranges: [{ file, begin: from, end: from + count * rowBytes }] });
  }
  return parts;
}

function fetched(job: WeightsJob, part: Part): Promise<Uint8Array<ArrayBuffer>[]> {
  return Promise.all(part.ranges.map(({ file, begin, end }) => job.source.range(file, begin, end, job.signal)));
}

/** The converted part: a bundle of [{"name", "dtype", "shape"}]. */
async function converted(job: WeightsJob, part: Part, tensors: readonly Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> {
  const value = { name: part.read.name, tensors: part.read.tensors.map((tensor) => tensor.name), rows: part.rows };
  const bundle = await job.client.call("bytes", "jerboa_language_parameter", job.language, new Moved(writeBundle(value, tensors)));
  await job.folder?.put(part.key, bundle);
  return bundle;
}

function upload(session: Session, part: Part, bundle: Uint8Array<ArrayBuffer>): void {
  const { value, parts } = readBundle(bundle);
  (value as readonly { readonly name: string }[]).forEach(({ name }, i) => {
    const bytes = parts[i]!;
    session.uploadBytes(name, bytes, part.rows === 0 ? 0 : (bytes.length / part.rows) * part.firstRow);
  });
}

/** Uploads every parameter, from the cache if possible and from the checkpoint otherwise. */
export async function loadWeights(job: WeightsJob, reads: readonly ParameterRead[]): Promise<void> {
  const place = (read: ParameterRead) => read.tensors[0]!;
  const inOrder = reads
    .map((read, index) => ({ read, index }))
    .sort((a, b) => (place(a.read).file === place(b.read).file ? place(a.read).begin - place(b.read).begin : place(a.read).file < place(b.read).file ? -1 : 1));
  const parts = inOrder.flatMap(({ read, index }) => partsOf(read, index));
  const sizeOf = (part: Part) => part.ranges.reduce((sum, range) => sum + range.end - range.begin, 0);
  const total = parts.reduce((sum, part) => sum + sizeOf(part), 0);
  const begin = async (part: Part | undefined) => {
    if (part === undefined) return undefined;
    const cached = await job.folder?.get(part.key);
    return cached === undefined ? { tensors: await fetched(job, part) } : { cached };
  };
  let done = 0;
  // The next part is fetched while one is converted. Its failure may go unobserved.
  const beginAhead = (part: Part | undefined) => {
    const content = begin(part);
    content.catch(() => undefined);
    return content;
  };
  let ahead = beginAhead(parts[0]);
  for (const [i, part] of parts.entries()) {
    job.signal?.throwIfAborted();
    const content = (await ahead)!;
    ahead = beginAhead(parts[i + 1]);
    upload(job.session, part, content.cached ?? (await converted(job, part, content.tensors)));
    done += sizeOf(part);
    job.onBytes(done, total);
  }
}
