import { UsageError } from "../errors.js";

// Models that were loaded once, in the browser's private file system: their small files, and their parameters as they are
// uploaded, already converted or quantised. A model is a folder; a parameter's file has its hash in its name, so that
// one that was cut off or damaged is noticed, and what is there already need not be loaded again after an interruption.

/** A model in the cache. */
export interface CachedModel {
  /** Where it was loaded from. */
  readonly source: string;
  /** The type of its weights, "int4" for example. */
  readonly weights: string;
  readonly bytes: number;
  /** Whether all of it is there. */
  readonly isComplete: boolean;
}

type Directory = FileSystemDirectoryHandle;

const rootName = "jerboa-models";
const factsName = "model.json";
const completeName = "complete";

async function root(): Promise<Directory | undefined> {
  const storage = (globalThis.navigator as Navigator | undefined)?.storage;
  if (typeof storage?.getDirectory !== "function") return undefined;
  try {
    return (await (await storage.getDirectory()).getDirectoryHandle(rootName, { create: true })) as Directory;
  } catch {
    return undefined; // in private windows of some browsers
  }
}

async function hashOf(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return [...digest.subarray(0, 16)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function readFile(folder: Directory, name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
  try {
    return new Uint8Array(await (await (await folder.getFileHandle(name)).getFile()).arrayBuffer());
  } catch {
    return undefined;
  }
}

async function writeFile(folder: Directory, name: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
  const file = await (await folder.getFileHandle(name, { create: true })).createWritable();
  await file.write(bytes);
  await file.close(); // nothing is there before
}

/** The folder of one model. */
export class ModelFolder {
  private readonly names = new Map<string, string>(); // a parameter's file by its key
  private isFull = false; // something was left out for want of room

  private constructor(private readonly folder: Directory) {}

  /** Undefined where there is no such file system. */
  static async open(source: string, weights: string): Promise<ModelFolder | undefined> {
    const parent = await root();
    if (parent === undefined) return undefined;
    const key = await hashOf(new TextEncoder().encode(`${source}\n${weights}`));
    const folder = (await parent.getDirectoryHandle(key, { create: true })) as Directory;
    await writeFile(folder, factsName, new TextEncoder().encode(JSON.stringify({ source, weights })));
    const opened = new ModelFolder(folder);
    for await (const [name] of folder.entries()) {
      const [key, hash] = name.split(".");
      if (name.endsWith(".bin") && key !== undefined && hash !== undefined) opened.names.set(key, name);
    }
    return opened;
  }

  /** What was put under this key, if it is undamaged. */
  async get(key: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const name = this.names.get(key);
    if (name === undefined) return undefined;
    const bytes = await readFile(this.folder, name);
    return bytes !== undefined && name === `${key}.${await hashOf(bytes)}.bin` ? bytes : undefined;
  }

  /** Keys are letters, digits and hyphens. Does nothing if there is no room. */
  async put(key: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const name = `${key}.${await hashOf(bytes)}.bin`;
    try {
      const old = this.names.get(key);
      if (old !== undefined && old !== name) await this.folder.removeEntry(old);
      await writeFile(this.folder, name, bytes);
      this.names.set(key, name);
    } catch (error) {
      if ((error as Error).name !== "QuotaExceededError") throw error;
      this.isFull = true;
    }
  }

  async clear(): Promise<void> {
    for (const name of this.names.values()) await this.folder.removeEntry(name);
    this.names.clear();
  }

  /** Does nothing if there was no room for all of it: the next load fetches what is missing. */
  async markComplete(): Promise<void> {
    if (this.isFull) return;
    await writeFile(this.folder, completeName, new Uint8Array());
  }
}

/** The models in the cache of this origin. */
export async function listCachedModels(): Promise<CachedModel[]> {
  const models: CachedModel[] = [];
  const parent = await root();
  if (parent === undefined) return models;
  for await (const [, handle] of parent.entries()) {
    const folder = handle as Directory;
    const facts = await readFile(folder, factsName);
    if (facts === undefined) continue;
    const { source, weights } = JSON.parse(new TextDecoder().decode(facts)) as { source: string; weights: string };
    let bytes = 0;
    let isComplete = false;
    for await (const [name, file] of folder.entries()) {
      bytes += (await (file as FileSystemFileHandle).getFile()).size;
      isComplete ||= name === completeName;
    }
    models.push({ source, weights, bytes, isComplete });
  }
  return models;
}

/** Removes models from the cache: those of one source, or all. Models that are being loaded wait for nothing. */
export async function clearCachedModels(source?: string): Promise<void> {
  const parent = await root();
  if (parent === undefined) {
    if (source !== undefined) throw new UsageError("there is no cache here: it needs a browser with a private file system");
    return;
  }
  const folders: string[] = [];
  for await (const [name, handle] of parent.entries()) {
    const facts = await readFile(handle as Directory, factsName);
    const found = facts === undefined ? undefined : (JSON.parse(new TextDecoder().decode(facts)) as { source: string }).source;
    if (source === undefined || found === source) folders.push(name);
  }
  for (const name of folders) await parent.removeEntry(name, { recursive: true });
}

/** Runs `body` while no other tab loads the same model. */
export async function withModelLock<T>(source: string, body: () => Promise<T>): Promise<T> {
  const locks = (globalThis.navigator as Navigator | undefined)?.locks;
  return locks === undefined ? body() : ((await locks.request(`jerboa ${source}`, body)) as T);
}
