import { FileError, GraphError, JerboaError, OutOfMemoryError, ShapeError, UsageError } from "../errors.js";

// The compiler library in WASM, behind its C interface (include/jerboa/c_api/jerboa_c.h).

/** The interface that this package was written for: JERBOA_ABI_VERSION. */
const abiVersion = 2;

/** jerboa_status */
const errorOf: readonly (new (message: string) => JerboaError)[] = [JerboaError, UsageError, FileError, GraphError, ShapeError, OutOfMemoryError];

/** The location of jerboa.wasm, its bytes, or the module compiled from them. */
export type CompilerSource = string | URL | Uint8Array<ArrayBuffer> | ArrayBuffer | WebAssembly.Module;

/**
 * An argument of a C function: a number or a handle, or bytes or text, which become a pointer and a size, or numbers,
 * which become a pointer and a count.
 */
export type Argument = number | string | Uint8Array | Int32Array | Float32Array;

type Exported = (...values: number[]) => number;

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const pointerBytes = 4;

/** The loaded library. Nothing it does needs a device, the network or a clock. */
export class CompilerModule {
  private readonly memory: WebAssembly.Memory;

  private constructor(private readonly exported: WebAssembly.Exports) {
    this.memory = exported["memory"] as WebAssembly.Memory;
  }

  /** Loads jerboa.wasm, by default from this package. Throws FileError if that fails. */
  static async load(source: CompilerSource = new URL("../jerboa.wasm", import.meta.url)): Promise<CompilerModule> {
    const compiled = source instanceof WebAssembly.Module ? source : await compile(source);
    let memory: WebAssembly.Memory | undefined;
    const instance = await WebAssembly.instantiate(compiled, importsOf(compiled, () => memory!));
    memory = instance.exports["memory"] as WebAssembly.Memory;
    const module = new CompilerModule(instance.exports);
    module.number("_initialize");
    const version = module.number("jerboa_abi_version");
    if (version !== abiVersion)
      throw new FileError(`jerboa.wasm has version ${version} of its interface, but this package needs ${abiVersion}: install both from one release`);
    return module;
  }

  get version(): string {
    return this.textAt(this.number("jerboa_version"));
  }

  /** The size of its memory, which grows but never shrinks. */
  get memoryBytes(): number {
    return this.memory.buffer.byteLength;
  }

  /** Calls a function that cannot fail. */
  number(name: string, ...values: number[]): number {
    return (this.exported[name] as Exported)(...values);
  }

  /** Calls a function that returns a status; throws the error that it reports. */
  call(name: string, ...values: readonly Argument[]): void {
    this.withArguments(values, (flat) => this.check(this.number(name, ...flat)));
  }

  /** The same for a function whose last argument receives a handle. */
  handle(name: string, ...values: readonly Argument[]): number {
    return this.withArguments(values, (flat) => {
      const place = this.allocate(pointerBytes);
      try {
        this.check(this.number(name, ...flat, place));
        return new DataView(this.memory.buffer).getUint32(place, true);
      } finally {
        this.number("free", place);
      }
    });
  }

  /** The same for a function that returns bytes, which are copied. */
  bytes(name: string, ...values: readonly Argument[]): Uint8Array<ArrayBuffer> {
    const buffer = this.handle(name, ...values);
    try {
      const start = this.number("jerboa_buffer_data", buffer);
      return new Uint8Array(this.memory.buffer).slice(start, start + this.number("jerboa_buffer_size", buffer));
    } finally {
      this.number("jerboa_buffer_free", buffer);
    }
  }

  /** The same for a function that returns JSON. */
  json(name: string, ...values: readonly Argument[]): unknown {
    return JSON.parse(decoder.decode(this.bytes(name, ...values)));
  }

  private withArguments<T>(values: readonly Argument[], use: (flat: number[]) => T): T {
    const allocated: number[] = [];
    try {
      const flat = values.flatMap((value) => {
        if (typeof value === "number") return [value];
        const array = typeof value === "string" ? encoder.encode(value) : value;
        const place = this.allocate(array.byteLength);
        allocated.push(place);
        new Uint8Array(this.memory.buffer).set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), place);
        return [place, array.length];
      });
      return use(flat);
    } finally {
      for (const place of allocated) this.number("free", place);
    }
  }

  private allocate(bytes: number): number {
    const place = this.number("malloc", Math.max(bytes, 1)) >>> 0;
    if (place === 0) throw new OutOfMemoryError(`the compiler has no memory for ${bytes} bytes`);
    return place;
  }

  private check(status: number): void {
    if (status !== 0) throw new (errorOf[status] ?? JerboaError)(this.textAt(this.number("jerboa_last_error")));
  }

  private textAt(place: number): string {
    const bytes = new Uint8Array(this.memory.buffer);
    return decoder.decode(bytes.slice(place, bytes.indexOf(0, place)));
  }
}

async function compile(source: string | URL | Uint8Array<ArrayBuffer> | ArrayBuffer): Promise<WebAssembly.Module> {
  if (typeof source !== "string" && !(source instanceof URL)) return WebAssembly.compile(source);
  const address = source instanceof URL ? source : new URL(source, globalThis.location?.href);
  if (address.protocol === "file:") return WebAssembly.compile(await readLocalFile(address));
  const response = await fetch(address);
  if (!response.ok) throw new FileError(`${address.href}: the server answers ${response.status}`);
  // A server that does not know the MIME type of .wasm files rules out compiling while loading.
  if (response.headers.get("content-type") === "application/wasm") return WebAssembly.compileStreaming(response);
  return WebAssembly.compile(await response.arrayBuffer());
}

/** For Node; bundlers must not resolve its modules. */
async function readLocalFile(address: URL): Promise<Uint8Array<ArrayBuffer>> {
  const files = "node:fs/promises";
  const { readFile } = (await import(/* @vite-ignore */ /* webpackIgnore: true */ files)) as typeof import("node:fs/promises");
  return new Uint8Array(await readFile(address));
}

const outOfFiles = 44; // ENOENT of WASI

// The functions that the C library imports. There are no files; output goes to the console.
function importsOf(module: WebAssembly.Module, memory: () => WebAssembly.Memory): WebAssembly.Imports {
  const known: Readonly<Record<string, (...values: never[]) => unknown>> = {
    emscripten_notify_memory_growth: () => undefined,
    fd_write: (file: number, parts: number, count: number, written: number) => {
      const view = new DataView(memory().buffer);
      let text = "";
      let bytes = 0;
      for (let i = 0; i < count; ++i) {
        const length = view.getUint32(parts + 8 * i + 4, true);
        const start = view.getUint32(parts + 8 * i, true);
        text += decoder.decode(new Uint8Array(memory().buffer).slice(start, start + length));
        bytes += length;
      }
      view.setUint32(written, bytes, true);
      (file === 1 ? console.log : console.error)(text.trimEnd());
      return 0;
    },
    environ_sizes_get: (count: number, bytes: number) => {
      const view = new DataView(memory().buffer);
      view.setUint32(count, 0, true);
      view.setUint32(bytes, 0, true);
      return 0;
    },
    environ_get: () => 0,
    clock_time_get: (_clock: number, _precision: bigint, place: number) => {
      new DataView(memory().buffer).setBigUint64(place, BigInt(Math.round(performance.now() * 1e6)), true);
      return 0;
    },
    proc_exit: (code: number) => {
      throw new JerboaError(`the compiler ended with code ${code}`);
    },
  };
  const imports: Record<string, Record<string, WebAssembly.ImportValue>> = {};
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module))
    if (kind === "function") (imports[from] ??= {})[name] = (known[name] as (() => unknown) | undefined) ?? (() => outOfFiles);
  return imports;
}
