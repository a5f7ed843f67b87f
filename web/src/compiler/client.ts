import * as errors from "../errors.js";
import { type Argument, CompilerModule, type CompilerSource } from "./module.js";

/** The kind of result of a function in the C interface. */
export type ResultKind = "number" | "handle" | "bytes" | "json" | "none";

/** Bytes that the caller no longer needs: they are transferred to a worker, while others are copied. */
export class Moved {
  constructor(readonly bytes: Uint8Array<ArrayBuffer>) {}
}

type Given = Argument | Moved;
const unwrapped = (values: readonly Given[]) => values.map((value) => (value instanceof Moved ? value.bytes : value));

/** A call of a C function in the form that is sent to a worker. */
export interface Call {
  readonly id: number;
  readonly kind: ResultKind;
  readonly name: string;
  readonly values: readonly Argument[];
}

/** The answer of a worker. */
export type Answer = { readonly id: number; readonly result: unknown } | { readonly id: number; readonly error: { readonly name: string; readonly message: string } };

export function callModule(module: CompilerModule, { kind, name, values }: Omit<Call, "id">): unknown {
  switch (kind) {
    case "number":
      return module.number(name, ...(values as number[]));
    case "handle":
      return module.handle(name, ...values);
    case "bytes":
      return module.bytes(name, ...values);
    case "json":
      return module.json(name, ...values);
    case "none":
      module.call(name, ...values);
      return undefined;
  }
}

/** The interface to the compiler, in a worker or in this thread. */
export interface CompilerClient {
  call(kind: "number" | "handle", name: string, ...values: readonly Given[]): Promise<number>;
  call(kind: "bytes", name: string, ...values: readonly Given[]): Promise<Uint8Array<ArrayBuffer>>;
  call(kind: "json", name: string, ...values: readonly Given[]): Promise<unknown>;
  call(kind: "none", name: string, ...values: readonly Given[]): Promise<void>;
  close(): void;
}

class LocalClient {
  constructor(private readonly module: CompilerModule) {}
  async call(kind: ResultKind, name: string, ...values: readonly Given[]): Promise<unknown> {
    return callModule(this.module, { kind, name, values: unwrapped(values) });
  }
  close(): void {}
}

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
}

class WorkerClient {
  private readonly waiting = new Map<number, Waiting>();
  private last = 0;
  private ended: Error | undefined;

  constructor(private readonly worker: Worker) {
    worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      const found = this.waiting.get(data.id);
      this.waiting.delete(data.id);
      if ("error" in data) found?.reject(revived(data.error));
      else found?.resolve(data.result);
    };
    worker.onerror = (event) => this.end(new errors.JerboaError(`the compiler's worker failed: ${event.message}`));
  }

  call(kind: ResultKind, name: string, ...values: readonly Given[]): Promise<unknown> {
    if (this.ended !== undefined) return Promise.reject(this.ended);
    const call: Call = { id: ++this.last, kind, name, values: unwrapped(values) };
    const moved = values.flatMap((value) => (value instanceof Moved ? [value.bytes.buffer] : []));
    return new Promise((resolve, reject) => {
      this.waiting.set(call.id, { resolve, reject });
      this.worker.postMessage(call, moved);
    });
  }

  close(): void {
    this.worker.terminate();
    this.end(new errors.UsageError("the compiler was closed"));
  }

  /** Fails all further calls. */
  private end(error: Error): void {
    this.ended ??= error;
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }
}

// Error classes do not survive postMessage.
function revived({ name, message }: { readonly name: string; readonly message: string }): Error {
  const known = (errors as unknown as Record<string, (new (message: string) => Error) | undefined>)[name];
  return known === undefined ? new errors.JerboaError(message) : new known(message);
}

/** A worker's first message. */
export interface Opening {
  readonly source: string | Uint8Array<ArrayBuffer> | ArrayBuffer | WebAssembly.Module | undefined;
}

async function openWorker(source: CompilerSource | undefined): Promise<CompilerClient> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
  const opening: Opening = { source: source instanceof URL ? source.href : source };
  try {
    await new Promise<void>((resolve, reject) => {
      worker.onmessage = ({ data }: MessageEvent<Answer>) => ("error" in data ? reject(revived(data.error)) : resolve());
      worker.onerror = (event) => {
        event.preventDefault();
        reject(new errors.JerboaError(`the compiler's worker did not start: ${event.message}`));
      };
      worker.postMessage(opening);
    });
  } catch (error) {
    worker.terminate();
    throw error;
  }
  return new WorkerClient(worker) as unknown as CompilerClient;
}

/**
 * The compiler in a worker, so that a page stays responsive; in the calling thread where there are no workers, as under
 * Node, or where they may not be started from another origin.
 */
export async function openCompiler(source?: CompilerSource): Promise<CompilerClient> {
  if (typeof Worker === "function" && globalThis.document !== undefined)
    try {
      return await openWorker(source);
    } catch (error) {
      console.warn(`jerboa: compiling in the page's own thread: ${(error as Error).message}`);
    }
  return new LocalClient(await CompilerModule.load(source)) as unknown as CompilerClient;
}
