import { UsageError } from "../errors.js";

// Models in the browser's private file system: their small files, and their parameters in the form in which they are
// uploaded, already converted or quantised. Each model is a folder. A parameter's file has its hash in its name, so
// that truncated or damaged files are noticed, and that loading resumes after an interruption. The cache never makes
// loading fail: if it does not work, loading continues without it.

/** The version of the folder's layout. Raise it when files are named, bundled or computed differently. */
export const cacheFormat = 2;

/** A cached model. */
export interface CachedModel {
  /** Where it was loaded from. */
  readonly source: string;
  /** The type of its weights, "int4" for example. */
  readonly weights: string;
  readonly bytes: number;
  /** Whether all of it is cached. */
  readonly isComplete: boolean;
}

type Directory = FileSystemDirectoryHandle;

const rootName = "jerboa-models";
const factsName = "model.json";
const completeName = "complete";

interface Facts {
  readonly source: string;
  readonly weights: string;
  readonly format?: number;
  /** Distinguishes parameters that were converted in different ways. */
  readonly parameters?: string;
}

/** The name of weights whose type is the checkpoint's. */
export const weightsAsStored = "as stored";

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
  try {
    await file.write(bytes);
    await file.close(); // removes the partial file
  } catch (error) {
    await file.abort().catch(() => undefined); // it may be closed already
    await folder.removeEntry(name).catch(() => undefined);
    throw error;
  }
}

async function readFacts(folder: Directory): Promise<Facts | undefined> {
  const bytes = await readFile(folder, factsName);
  try {
    return bytes === undefined ? undefined : (JSON.parse(new TextDecoder().decode(bytes)) as Facts);
  } catch {
    return undefined; // it was cut off
  }
}

function writeFacts(folder: Directory, facts: Facts): Promise<void> {
  return writeFile(folder, factsName, new TextEncoder().encode(JSON.stringify(facts)));
}

const isFullError = (error: unknown) => (error as Error).name === "QuotaExceededError";

/** A full disk deserves no warning. */
function warn(error: unknown): void {
  if (!isFullError(error)) console.warn(`jerboa: the model is not kept in this browser: ${(error as Error).message}`);
}

/** The folder of one model. */
export class ModelFolder {
  private readonly names = new Map<string, string>(); // file of each parameter, by key
  private hasFailed = false; // something was left out
  private isBroken = false; // not because the disk is full, since smaller parts may still fit then
  private isClosed = false;
  private changing: Promise<void> = Promise.resolve(); // changes run one after another; none of them rejects

  private constructor(
    private readonly folder: Directory,
    private facts: Facts,
  ) {}

  /** Undefined if there is no such file system, or no room in it. */
  static async open(source: string, weights: string): Promise<ModelFolder | undefined> {
    const parent = await root();
    if (parent === undefined) return undefined;
    try {
      const key = await hashOf(new TextEncoder().encode(`${source}\n${weights}`));
      return await ModelFolder.from((await parent.getDirectoryHandle(key, { create: true })) as Directory, source, weights);
    } catch (error) {
      warn(error);
      return undefined;
    }
  }

  private static async from(folder: Directory, source: string, weights: string): Promise<ModelFolder> {
    const found = await readFacts(folder);
    const isCurrent = found?.format === cacheFormat;
    const opened = new ModelFolder(folder, isCurrent ? found : { source, weights, format: cacheFormat });
    await opened.findFiles();
    if (isCurrent) return opened;
    await opened.clear(); // files of another version
    await writeFacts(folder, opened.facts);
    return opened;
  }

  // If several files have the same key, none of them can be trusted.
  private async findFiles(): Promise<void> {
    const found = new Map<string, string[]>();
    for await (const [name] of this.folder.entries()) {
      const [key, hash] = name.split(".");
      if (name.endsWith(".bin") && key !== undefined && hash !== undefined) found.set(key, [...(found.get(key) ?? []), name]);
    }
    for (const [key, [first, ...others]] of found)
      if (others.length === 0) this.names.set(key, first!);
      else await this.remove([completeName, first!, ...others]);
  }

  /**
   * Forgets parameters that were made from other tensors, or by another version of the compiler: `description` is all that
   * their bytes depend on beside the checkpoint. The files of `keptKey` stay.
   */
  async keepParametersOf(description: string, keptKey: string): Promise<void> {
    const parameters = await hashOf(new TextEncoder().encode(description));
    if (this.facts.parameters === parameters) return;
    await this.change(async () => {
      await this.remove([completeName, ...[...this.names].flatMap(([key, name]) => (key === keptKey ? [] : [name]))]);
      for (const key of [...this.names.keys()]) if (key !== keptKey) this.names.delete(key);
      const facts = { ...this.facts, parameters };
      await writeFacts(this.folder, facts);
      this.facts = facts;
    });
  }

  /** The content under this key, if it is undamaged. */
  async get(key: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const name = this.names.get(key);
    if (name === undefined) return undefined;
    const bytes = await readFile(this.folder, name);
    return bytes !== undefined && name === `${key}.${await hashOf(bytes)}.bin` ? bytes : undefined;
  }

  /** Keys are letters, digits and hyphens. Drops content that does not fit, and everything after the disk has failed. */
  async put(key: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    if (this.isBroken) return;
    await this.change(async () => {
      const name = `${key}.${await hashOf(bytes)}.bin`;
      const old = this.names.get(key);
      this.names.delete(key);
      if (old !== undefined && old !== name) await this.folder.removeEntry(old);
      await writeFile(this.folder, name, bytes);
      this.names.set(key, name);
    });
  }

  async clear(): Promise<void> {
    await this.change(async () => {
      const names = [completeName, ...this.names.values()];
      this.names.clear();
      await this.remove(names);
    });
  }

  /**
   * Ends all changes: those that are asked for from now on do nothing, and this resolves when the one under way is done.
   * A load that was given up calls it before another one may use the folder.
   */
  async close(): Promise<void> {
    this.isClosed = true;
    await this.changing;
  }

  private change(work: () => Promise<void>): Promise<void> {
    this.changing = this.changing.then(() => (this.isClosed ? undefined : work())).catch((error: unknown) => this.fail(error));
    return this.changing;
  }

  private async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await this.folder.removeEntry(name).catch(() => undefined); // it may not exist
  }

  /** Does nothing if something is missing: the next load fetches it. */
  async markComplete(): Promise<void> {
    if (!this.hasFailed) await this.change(() => writeFile(this.folder, completeName, new Uint8Array()));
  }

  private fail(error: unknown): void {
    if (!this.isBroken) warn(error);
    this.hasFailed = true;
    this.isBroken ||= !isFullError(error);
  }
}

/** The cached models of this origin. */
export async function listCachedModels(): Promise<CachedModel[]> {
  const models: CachedModel[] = [];
  const parent = await root();
  if (parent === undefined) return models;
  for await (const [, handle] of parent.entries()) {
    const folder = handle as Directory;
    const facts = await readFacts(folder);
    if (facts === undefined) continue;
    const { source, weights, format } = facts;
    let bytes = 0;
    let isComplete = false;
    for await (const [name, file] of folder.entries()) {
      bytes += (await (file as FileSystemFileHandle).getFile()).size;
      isComplete ||= name === completeName && format === cacheFormat;
    }
    models.push({ source, weights, bytes, isComplete });
  }
  return models;
}

/**
 * Removes models from the cache: those of one source, or all; with `weights` only the one of this type. One that a tab is
 * loading is removed once it is loaded.
 */
export async function clearCachedModels(source?: string, weights?: string): Promise<void> {
  const parent = await root();
  if (parent === undefined) {
    if (source !== undefined) throw new UsageError("there is no cache here: it needs a browser with a private file system");
    return;
  }
  const folders: { readonly name: string; readonly owner: string }[] = [];
  for await (const [name, handle] of parent.entries()) {
    const facts = await readFacts(handle as Directory);
    const isMeant = (source === undefined || facts?.source === source) && (weights === undefined || facts?.weights === weights);
    if (isMeant) folders.push({ name, owner: facts?.source ?? "" });
  }
  const remove = (name: string) =>
    parent.removeEntry(name, { recursive: true }).catch((error: unknown) => {
      if ((error as Error).name !== "NotFoundError") throw error; // another tab was faster
    });
  await Promise.all(folders.map(({ name, owner }) => withModelLock(owner, () => remove(name))));
}

export interface LockOptions {
  /** Called if another tab has to finish first. */
  readonly onWait?: (() => void) | undefined;
  /** Ends the wait, but not the body. */
  readonly signal?: AbortSignal | undefined;
}

/** Runs `body` while no other tab loads the same model. */
export async function withModelLock<T>(source: string, body: () => Promise<T>, { onWait, signal }: LockOptions = {}): Promise<T> {
  const locks = (globalThis.navigator as Navigator | undefined)?.locks;
  if (locks === undefined) return body();
  const name = `jerboa ${source}`;
  const atOnce = await locks.request(name, { ifAvailable: true }, async (lock) => (lock === null ? undefined : { value: await body() }));
  if (atOnce !== undefined) return atOnce.value;
  onWait?.();
  return (await locks.request(name, signal === undefined ? {} : { signal }, body)) as T;
}
