import { readBundle, writeBundle } from "../compiler/bundle.js";
import { FileError } from "../errors.js";
import type { ModelFolder } from "./model_cache.js";
import type { FileFacts, ModelSource } from "./source.js";

// Reads the files that describe a model, from its source or from the cache.

const smallFiles = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];
const otherTokenizers = ["tokenizer.model", "tokenizer.bin"];
const headerLengthBytes = 8;
const maxHeaderBytes = 100e6; // limit of the safetensors format

export interface LoadedFile {
  readonly name: string;
  readonly size: number;
  readonly version: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** Identifies a version of a file by its ETag or date, and its size. */
const versionOf = (facts: FileFacts) => `${facts.version} ${facts.bytes ?? ""}`;

/** Reads small files completely, and the headers of safetensors files. */
async function readFiles(source: ModelSource, signal: AbortSignal | undefined): Promise<LoadedFile[]> {
  const files: LoadedFile[] = [];
  const add = async (name: string) => {
    const facts = await source.inspect(name, signal); // first: if the file changes in between, the next load notices
    const bytes = facts === undefined ? undefined : await source.read(name, signal);
    if (facts === undefined || bytes === undefined) return false;
    files.push({ name, size: bytes.length, version: versionOf(facts), bytes });
    return true;
  };
  if (!(await add("config.json"))) throw new FileError(`${source.name}: there is no config.json, so this is not a Hugging Face model`);
  await Promise.all(smallFiles.slice(1).map(add));
  if (!files.some((file) => file.name === "tokenizer.json")) for (const name of otherTokenizers) if (await add(name)) break;
  for (const name of await shardNames(source, signal)) files.push(await readHeader(source, name, signal));
  return files;
}

const indexName = "model.safetensors.index.json";

async function shardNames(source: ModelSource, signal: AbortSignal | undefined): Promise<string[]> {
  const index = await source.read(indexName, signal);
  if (index === undefined) return ["model.safetensors"];
  let map: unknown;
  try {
    map = (JSON.parse(new TextDecoder().decode(index)) as { weight_map?: unknown } | null)?.weight_map;
  } catch (error) {
    throw new FileError(`${source.name}: ${indexName} is not valid JSON: ${(error as Error).message}`);
  }
  const names = typeof map === "object" && map !== null ? [...new Set(Object.values(map as Record<string, unknown>))] : [];
  if (names.length === 0 || !names.every((name) => typeof name === "string")) throw new FileError(`${source.name}: ${indexName} has no weight_map from tensors to files`);
  return names.sort();
}

async function readHeader(source: ModelSource, name: string, signal: AbortSignal | undefined): Promise<LoadedFile> {
  const facts = await source.inspect(name, signal);
  if (facts === undefined) throw new FileError(`${source.name}: there is no ${name}`);
  const { bytes: size } = facts;
  if (size === undefined) throw new FileError(`${source.name}: the server does not say how large ${name} is`);
  const first = await source.range(name, 0, Math.min(headerLengthBytes, size), signal);
  const length = first.length < headerLengthBytes ? 0 : Number(new DataView(first.buffer).getBigUint64(0, true));
  if (length > maxHeaderBytes) throw new FileError(`${source.name}: ${name} is not a safetensors file: its header would have ${length} bytes, and at most ${maxHeaderBytes} are allowed`);
  const end = Math.min(size, headerLengthBytes + length); // the compiler reports malformed headers
  return { name, size, version: versionOf(facts), bytes: await source.range(name, 0, end, signal) };
}

/** The cache key of these files. */
export const filesKey = "files";

/** Whether the source has a newer version of the file; false if it cannot be reached. */
async function hasChanged(source: ModelSource, { name, version }: Omit<LoadedFile, "bytes">, signal: AbortSignal | undefined): Promise<boolean> {
  const facts = await source.inspect(name, signal, false).catch(() => undefined);
  return facts !== undefined && versionOf(facts) !== version;
}

/** Takes the files from the cache if they are complete and up to date. */
export async function filesOf(source: ModelSource, folder: ModelFolder | undefined, signal: AbortSignal | undefined): Promise<LoadedFile[]> {
  const cached = await folder?.get(filesKey);
  if (cached !== undefined) {
    const { value, parts } = readBundle(cached);
    const rows = value as readonly Omit<LoadedFile, "bytes">[];
    const changes = await Promise.all(rows.map((row) => hasChanged(source, row, signal)));
    signal?.throwIfAborted();
    if (!changes.includes(true)) return rows.map((row, i) => ({ ...row, bytes: parts[i]!.slice() }));
  }
  const files = await readFiles(source, signal);
  await folder?.clear(); // its parameters belong to another version
  await folder?.put(filesKey, writeBundle(files.map(({ bytes: _, ...row }) => row), files.map((file) => file.bytes)));
  return files;
}
