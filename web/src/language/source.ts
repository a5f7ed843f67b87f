import { described } from "../checks.js";
import { FileError, NetworkError, UsageError } from "../errors.js";

// Where a model's files come from.

export interface ModelSource {
  /** The location of the files, for messages and as the key of the cache. */
  readonly name: string;
  /** The whole file; undefined if it does not exist. */
  read(file: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /**
   * The size of a file, and what tells versions of it apart; undefined if there is none of this name. `isPatient` says
   * whether a server that fails is asked again, by default it is; a model in the cache need not wait for one.
   */
  inspect(file: string, signal?: AbortSignal, isPatient?: boolean): Promise<FileFacts | undefined>;
  /** The bytes from `begin` to `end`. */
  range(file: string, begin: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

export interface FileFacts {
  /** Undefined if the server does not report it. */
  readonly bytes: number | undefined;
  readonly version: string;
}

const retries = 5; // in a row, without any progress
const firstPause = 200; // milliseconds, which double
const longestPause = 10_000;

/** A server that asks for a later retry. */
class BusyError extends NetworkError {
  constructor(
    message: string,
    readonly pause: number | undefined,
  ) {
    super(message);
    this.name = NetworkError.name;
  }
}

const isBusy = (status: number) => status === 429 || status >= 500;

/** The delay in Retry-After, in milliseconds; dates, which servers hardly use, are ignored. */
function pauseOf(response: Response): number | undefined {
  const seconds = Number(response.headers.get("retry-after") ?? NaN);
  return Number.isFinite(seconds) && seconds >= 0 ? 1000 * seconds : undefined;
}

/** Waits, unless the signal is aborted. */
function pause(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", end, { once: true });
  });
}

function addressOf(given: string | URL): URL {
  try {
    return new URL(given, globalThis.location?.href);
  } catch {
    const isWhole = globalThis.location === undefined ? "; outside of a page it must be whole, such as https://…/MODEL/" : "";
    throw new UsageError(`${String(given)} is not the address of a model's folder${isWhole}`);
  }
}

/** A folder on a server, such as a model's on a hub. */
export class UrlSource implements ModelSource {
  readonly name: string;
  private readonly base: URL;

  constructor(
    address: string | URL,
    private readonly request: typeof fetch = globalThis.fetch.bind(globalThis),
  ) {
    this.base = addressOf(address);
    if (!this.base.pathname.endsWith("/")) this.base.pathname += "/";
    this.base.hash = "";
    this.name = this.base.href;
  }

  async read(file: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.retried(retries, signal, async () => {
      const response = await this.fetch(file, signal);
      return response === undefined ? undefined : new Uint8Array(await this.unbroken(file, response.arrayBuffer()));
    });
  }

  async inspect(file: string, signal?: AbortSignal, isPatient = true): Promise<FileFacts | undefined> {
    const response = await this.retried(isPatient ? retries : 0, signal, () => this.fetch(file, signal, { range: "bytes=0-0" }));
    if (response === undefined) return undefined;
    await response.body?.cancel();
    const total = response.status === 206 ? response.headers.get("content-range")?.split("/")[1] : response.headers.get("content-length");
    const isKnown = Number.isSafeInteger(Number(total)) && Number(total) > 0;
    const version = response.headers.get("x-linked-etag") ?? response.headers.get("etag") ?? response.headers.get("last-modified") ?? "";
    return { bytes: isKnown ? Number(total) : undefined, version };
  }

  async range(file: string, begin: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(end - begin);
    const progress = { done: 0 };
    // Resumes a broken connection where it ended.
    if (bytes.length > 0) await this.retried(retries, signal, () => this.readInto(file, begin, bytes, progress, signal), () => progress.done);
    return bytes;
  }

  private async readInto(file: string, begin: number, into: Uint8Array, progress: { done: number }, signal: AbortSignal | undefined): Promise<void> {
    const from = begin + progress.done;
    const response = await this.fetch(file, signal, { range: `bytes=${from}-${begin + into.length - 1}` });
    if (response === undefined) throw new FileError(`${this.address(file)}: the file is gone`);
    if (response.status !== 206 && from > 0) {
      await response.body?.cancel(); // otherwise the browser would download all of it
      throw new FileError(`${this.address(file)}: the server does not answer requests for parts of a file`);
    }
    const reader = response.body!.getReader();
    while (progress.done < into.length) {
      const { done, value } = await this.unbroken(file, reader.read());
      if (done) throw new NetworkError(`${this.address(file)}: the connection broke off`);
      const fits = value.subarray(0, into.length - progress.done);
      into.set(fits, progress.done);
      progress.done += fits.length;
    }
    await reader.cancel();
  }

  /** Retries after temporary failures. Progress, which `progressOf` reports, resets the number of retries. */
  private async retried<T>(most: number, signal: AbortSignal | undefined, body: () => Promise<T>, progressOf = () => 0): Promise<T> {
    let reached = progressOf();
    for (let failures = 1; ; ++failures)
      try {
        return await body();
      } catch (error) {
        signal?.throwIfAborted();
        if (progressOf() > reached) failures = 1;
        reached = progressOf();
        if (!(error instanceof NetworkError) || failures > most) throw error;
        const asked = error instanceof BusyError ? error.pause : undefined;
        await pause(Math.min(longestPause, asked ?? firstPause * 2 ** (failures - 1)), signal);
      }
  }

  private address(file: string): string {
    const address = new URL(file, this.base);
    address.search = this.base.search;
    return address.href;
  }

  private async fetch(file: string, signal: AbortSignal | undefined, headers: Readonly<Record<string, string>> = {}): Promise<Response | undefined> {
    const response = await this.unbroken(file, this.request(this.address(file), { headers, signal: signal ?? null }));
    if (response.ok && !isPage(response)) return response;
    await response.body?.cancel();
    if (response.status === 404 || response.ok) return undefined;
    const message = `${this.address(file)}: the server answers ${response.status}`;
    throw isBusy(response.status) ? new BusyError(message, pauseOf(response)) : new FileError(message);
  }

  /** Turns network failures into NetworkError, whatever the browser calls them. */
  private async unbroken<T>(file: string, work: Promise<T>): Promise<T> {
    try {
      return await work;
    } catch (error) {
      if ((error as Error).name === "AbortError") throw error;
      throw new NetworkError(`${this.address(file)}: ${(error as Error).message}`, { cause: error });
    }
  }
}

/** Application servers, such as Vite's, answer with a page for files that do not exist; no file of a model is a page. */
const isPage = (response: Response) => response.headers.get("content-type")?.toLowerCase().startsWith("text/html") ?? false;

/** The depth of a file in the folder that a user picked. */
const depthOf = (file: File) => (file.webkitRelativePath ?? "").split("/").length;

/**
 * Files by their last name. If several have the same name, the least deep one counts: a model's folder may contain
 * others.
 */
function byName(files: Iterable<File>): Map<string, Blob> {
  const found = new Map<string, File>();
  for (const file of files) {
    if (typeof file?.arrayBuffer !== "function") throw new UsageError(`a model's files must be Files, not ${described(file)}`);
    const other = found.get(file.name);
    if (other === undefined || depthOf(file) < depthOf(other)) found.set(file.name, file);
  }
  return found;
}

/** Files that a user picked or dropped. */
export class FileSource implements ModelSource {
  readonly name = "the files";
  /** By name. */
  readonly files: ReadonlyMap<string, Blob>;

  constructor(files: Iterable<File> | ReadonlyMap<string, Blob>) {
    this.files = files instanceof Map ? files : byName(files as Iterable<File>);
    if (this.files.size === 0) throw new UsageError("there are no files: a model is a config.json, a tokenizer and safetensors files");
  }

  async read(file: string, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    signal?.throwIfAborted();
    const found = this.files.get(file);
    return found === undefined ? undefined : bytesOfBlob(file, found);
  }

  async inspect(file: string): Promise<FileFacts | undefined> {
    const found = this.files.get(file);
    if (found === undefined) return undefined;
    return { bytes: found.size, version: String((found as Partial<File>).lastModified ?? "") };
  }

  async range(file: string, begin: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    signal?.throwIfAborted();
    const found = this.files.get(file);
    if (found === undefined || end > found.size) throw new FileError(`${file}: the file is not there, or too short`);
    return bytesOfBlob(file, found.slice(begin, end));
  }
}

// A file that was moved or changed since it was picked can no longer be read.
async function bytesOfBlob(name: string, blob: Blob): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await blob.arrayBuffer());
  } catch (error) {
    throw new FileError(`${name} cannot be read: ${(error as Error).message}`, { cause: error });
  }
}

/** The types of values that a user may pass as a model. */
export type ModelFiles = string | URL | Iterable<File> | ReadonlyMap<string, Blob> | ModelSource;

export function sourceOf(files: ModelFiles): ModelSource {
  if (typeof files === "string" || files instanceof URL) return new UrlSource(files);
  if (typeof files === "object" && files !== null) {
    if ("range" in files && typeof files.range === "function") return files as ModelSource;
    if (Symbol.iterator in files) return new FileSource(files as Iterable<File> | ReadonlyMap<string, Blob>);
  }
  throw new UsageError(`a model is the address of a folder, or files, not ${described(files)}`);
}
