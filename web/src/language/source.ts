import { FileError, UsageError } from "../errors.js";

// Where a model's files come from.

export interface ModelSource {
  /** For messages, and for the cache: where the files are. */
  readonly name: string;
  /** The whole file; undefined if there is none of this name. */
  read(file: string): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** The size of a file, and what tells versions of it apart; undefined if there is none of this name. */
  inspect(file: string): Promise<FileFacts | undefined>;
  /** The bytes from `begin` to `end`. */
  range(file: string, begin: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>>;
}

export interface FileFacts {
  readonly bytes: number;
  readonly version: string;
}

/** A folder on a server, such as a model's on a hub. */
export class UrlSource implements ModelSource {
  readonly name: string;

  constructor(
    address: string | URL,
    private readonly request: typeof fetch = globalThis.fetch.bind(globalThis),
  ) {
    const base = new URL(address, globalThis.location?.href);
    if (!base.pathname.endsWith("/")) base.pathname += "/";
    this.name = base.href;
  }

  async read(file: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const response = await this.fetch(file);
    return response === undefined ? undefined : new Uint8Array(await response.arrayBuffer());
  }

  async inspect(file: string): Promise<FileFacts | undefined> {
    const response = await this.fetch(file, { headers: { range: "bytes=0-0" } });
    if (response === undefined) return undefined;
    await response.body?.cancel();
    const total = response.status === 206 ? response.headers.get("content-range")?.split("/")[1] : response.headers.get("content-length");
    const bytes = Number(total);
    if (!Number.isSafeInteger(bytes) || bytes <= 0) throw new FileError(`${this.name}${file}: the server does not say how large the file is`);
    const version = response.headers.get("x-linked-etag") ?? response.headers.get("etag") ?? response.headers.get("last-modified") ?? "";
    return { bytes, version };
  }

  async range(file: string, begin: number, end: number, signal?: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const bytes = new Uint8Array(end - begin);
    const progress = { done: 0 };
    for (let failures = 0; progress.done < bytes.length; ) {
      const before = progress.done;
      try {
        await this.readInto(file, begin, bytes, progress, signal);
      } catch (error) {
        // A connection that breaks off is taken up again where it ended.
        failures = progress.done > before ? 1 : failures + 1;
        if (signal?.aborted === true || error instanceof FileError || failures > retries) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** failures));
      }
    }
    return bytes;
  }

  private async readInto(file: string, begin: number, into: Uint8Array, progress: { done: number }, signal: AbortSignal | undefined): Promise<void> {
    const from = begin + progress.done;
    const response = await this.fetch(file, { headers: { range: `bytes=${from}-${begin + into.length - 1}` }, signal: signal ?? null });
    if (response === undefined) throw new FileError(`${this.name}${file}: the file is gone`);
    if (response.status !== 206 && from > 0) throw new FileError(`${this.name}${file}: the server does not answer requests for parts of a file`);
    const reader = response.body!.getReader();
    while (progress.done < into.length) {
      const { done, value } = await reader.read();
      if (done) return;
      const fits = value.subarray(0, into.length - progress.done);
      into.set(fits, progress.done);
      progress.done += fits.length;
    }
    await reader.cancel();
  }

  private async fetch(file: string, init: RequestInit = {}): Promise<Response | undefined> {
    let response: Response;
    try {
      response = await this.request(this.name + file, init);
    } catch (error) {
      if ((error as Error).name === "AbortError") throw error;
      throw new TypeError(`${this.name}${file}: ${(error as Error).message}`);
    }
    if (response.status === 404) return undefined;
    if (!response.ok) throw new FileError(`${this.name}${file}: the server answers ${response.status}`);
    return response;
  }
}

const retries = 5; // in a row, without any progress

/** Files that a user picked or dropped; those in folders by their last name. */
export class FileSource implements ModelSource {
  readonly name = "the files";
  private readonly files: ReadonlyMap<string, Blob>;

  constructor(files: Iterable<File> | ReadonlyMap<string, Blob>) {
    this.files = files instanceof Map ? files : new Map([...(files as Iterable<File>)].map((file) => [file.name, file]));
    if (this.files.size === 0) throw new UsageError("there are no files: a model is a config.json, a tokenizer and safetensors files");
  }

  async read(file: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const found = this.files.get(file);
    return found === undefined ? undefined : new Uint8Array(await found.arrayBuffer());
  }

  async inspect(file: string): Promise<FileFacts | undefined> {
    const found = this.files.get(file);
    if (found === undefined) return undefined;
    return { bytes: found.size, version: String((found as Partial<File>).lastModified ?? "") };
  }

  async range(file: string, begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    const found = this.files.get(file);
    if (found === undefined || end > found.size) throw new FileError(`${file}: the file is not there, or too short`);
    return new Uint8Array(await found.slice(begin, end).arrayBuffer());
  }
}

/** What a user may pass as a model. */
export type ModelFiles = string | URL | Iterable<File> | ReadonlyMap<string, Blob> | ModelSource;

export function sourceOf(files: ModelFiles): ModelSource {
  if (typeof files === "string" || files instanceof URL) return new UrlSource(files);
  if ("range" in files && typeof files.range === "function") return files as ModelSource;
  return new FileSource(files as Iterable<File> | ReadonlyMap<string, Blob>);
}
