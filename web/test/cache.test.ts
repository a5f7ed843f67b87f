import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { afterEach, beforeEach, test } from "node:test";

import { type FileFacts, LanguageModel, type LoadOptions, type ModelSource, clearCachedModels, listCachedModels } from "../src/index.js";
import { ModelFolder, cacheFormat, withModelLock } from "../src/language/model_cache.js";
import { type WeightsJob, loadWeights } from "../src/language/weights.js";
import { goldenFiles } from "./golden_model.js";
import { withDevice } from "./support.js";

// The cache of models, with fakes of the browser's private file system and locks, which Node lacks.

class FakeFile {
  readonly kind = "file";
  bytes = new Uint8Array();
  constructor(private readonly disk: Disk) {}
  async getFile(): Promise<Blob> {
    return new Blob([this.bytes]);
  }
  async createWritable(): Promise<object> {
    let written = new Uint8Array();
    return {
      write: async (bytes: Uint8Array<ArrayBuffer>) => {
        await this.disk.passGate();
        if (this.disk.failure !== undefined) throw new DOMException(this.disk.failure, "UnknownError");
        if (this.disk.used() + bytes.length > this.disk.quota) throw new DOMException("the disk is full", "QuotaExceededError");
        written = bytes.slice();
      },
      close: async () => void (this.bytes = written),
      abort: async () => undefined,
    };
  }
}

class FakeFolder {
  readonly kind = "directory";
  readonly children = new Map<string, FakeFolder | FakeFile>();
  constructor(private readonly disk: Disk) {}
  used(): number {
    return [...this.children.values()].reduce((sum, child) => sum + (child instanceof FakeFile ? child.bytes.length : child.used()), 0);
  }
  async *entries(): AsyncGenerator<[string, FakeFolder | FakeFile]> {
    yield* [...this.children];
  }
  async getDirectoryHandle(name: string): Promise<FakeFolder> {
    return this.child(name, true, () => new FakeFolder(this.disk)) as FakeFolder;
  }
  async getFileHandle(name: string, { create = false } = {}): Promise<FakeFile> {
    return this.child(name, create, () => new FakeFile(this.disk)) as FakeFile;
  }
  async removeEntry(name: string): Promise<void> {
    if (!this.children.delete(name)) throw new DOMException(`there is no ${name}`, "NotFoundError");
  }
  private child(name: string, create: boolean, make: () => FakeFolder | FakeFile): FakeFolder | FakeFile {
    if (!create && !this.children.has(name)) throw new DOMException(`there is no ${name}`, "NotFoundError");
    if (!this.children.has(name)) this.children.set(name, make());
    return this.children.get(name)!;
  }
}

class Disk {
  quota = Number.POSITIVE_INFINITY;
  failure: string | undefined; // fails all writes
  held = 0; // writes that waited at the gate
  private gate: Promise<void> | undefined;
  openGate = () => {};
  readonly root = new FakeFolder(this);
  used = () => this.root.used();

  /** Blocks all further writes until the gate is opened. */
  closeGate(): void {
    this.gate = new Promise((resolve) => {
      this.openGate = () => {
        this.gate = undefined;
        resolve();
      };
    });
  }
  async passGate(): Promise<void> {
    if (this.gate !== undefined) ++this.held;
    await this.gate;
  }
  async holds(): Promise<void> {
    while (this.held === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Locks within one thread: requests for a name are granted one after another. */
class FakeLocks {
  readonly asked: string[] = [];
  private readonly last = new Map<string, Promise<unknown>>();
  async request<T>(name: string, { ifAvailable = false, signal }: LockOptions, body: (lock: unknown) => Promise<T>): Promise<T> {
    this.asked.push(name);
    const before = this.last.get(name);
    if (ifAvailable && before !== undefined) return body(null);
    const aborted = new Promise<never>((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
    const turn = Promise.race([before, aborted]).then(() => body({ name }));
    const end: Promise<unknown> = Promise.all([before, turn.catch(() => undefined)]).then(() => {
      if (this.last.get(name) === end) this.last.delete(name);
    });
    this.last.set(name, end);
    return turn;
  }
}

const own = Object.getOwnPropertyDescriptor(globalThis, "navigator");
let disk: Disk;
let locks: FakeLocks;
beforeEach(() => {
  disk = new Disk();
  locks = new FakeLocks();
  const navigator = { storage: { getDirectory: async () => disk.root }, locks };
  Object.defineProperty(globalThis, "navigator", { value: navigator, configurable: true });
});
afterEach(() => {
  if (own === undefined) delete (globalThis as { navigator?: unknown }).navigator;
  else Object.defineProperty(globalThis, "navigator", own);
});

const address = "https://models.test/tiny/";
const bytes = (size: number) => new Uint8Array(size).fill(7);
const openFolder = async () => (await ModelFolder.open(address, "f32"))!;

test("cached files are found again, and damage is noticed", async () => {
  await (await openFolder()).put("0", bytes(100));
  assert.deepEqual(await (await openFolder()).get("0"), bytes(100));
  const [folder] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  for (const [name, file] of (folder as FakeFolder).children) if (name.startsWith("0.")) (file as FakeFile).bytes[3] = 8;
  assert.equal(await (await openFolder()).get("0"), undefined);
});

test("if two files exist for one part, neither is used", async () => {
  const folder = await openFolder();
  for (const key of ["0", "1"]) await folder.put(key, bytes(100));
  await folder.markComplete();
  const [kept] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  const { children } = kept as FakeFolder;
  const other = bytes(50);
  const stale = await (kept as FakeFolder).getFileHandle(`0.${createHash("sha256").update(other).digest("hex").slice(0, 32)}.bin`, { create: true });
  stale.bytes = other;
  const again = await openFolder();
  assert.equal(await again.get("0"), undefined);
  assert.deepEqual(await again.get("1"), bytes(100));
  assert.ok([...children.keys()].every((name) => !name.startsWith("0.") && name !== "complete"), "they are removed");
});

test("a closed folder finishes the pending write, and accepts no more", async () => {
  const folder = await openFolder();
  disk.closeGate();
  const first = folder.put("0", bytes(10));
  const second = folder.put("1", bytes(10));
  await disk.holds();
  let isClosed = false;
  const closing = folder.close().then(() => (isClosed = true));
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.ok(!isClosed, "a write is under way");
  disk.openGate();
  await Promise.all([first, second, closing]);
  for (const work of [() => folder.put("2", bytes(10)), () => folder.clear(), () => folder.keepParametersOf("version 2", "files"), () => folder.markComplete()]) await work();
  const [kept] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  assert.deepEqual([...(kept as FakeFolder).children.keys()].map((name) => name.split(".")[0]).sort(), ["0", "model"]);
});

test("a full disk leaves the cached model incomplete until there is room", async () => {
  const folder = await openFolder();
  disk.quota = disk.used() + 250;
  for (const key of ["0", "1", "2"]) await folder.put(key, bytes(100));
  await folder.markComplete();
  assert.deepEqual(await folder.get("1"), bytes(100));
  assert.equal(await folder.get("2"), undefined);
  assert.deepEqual((await listCachedModels()).map(({ isComplete }) => isComplete), [false]);
  assert.ok(disk.used() <= disk.quota);

  disk.quota = Number.POSITIVE_INFINITY;
  const again = await openFolder();
  assert.equal(await again.get("2"), undefined, "a part that did not fit");
  await again.put("2", bytes(100));
  await again.markComplete();
  assert.deepEqual((await listCachedModels()).map(({ isComplete }) => isComplete), [true]);
});

test("a full disk is like having no cache", async () => {
  disk.quota = 0;
  assert.equal(await ModelFolder.open(address, "f32"), undefined);
  assert.deepEqual(await listCachedModels(), []);
});

test("files of another version of the package are not used", async () => {
  const folder = await openFolder();
  await folder.put("0", bytes(100));
  await folder.markComplete();
  const [kept] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  const facts = (kept as FakeFolder).children.get("model.json") as FakeFile;
  facts.bytes = new TextEncoder().encode(JSON.stringify({ source: address, weights: "f32", format: cacheFormat - 1 }));
  assert.deepEqual((await listCachedModels()).map(({ isComplete }) => isComplete), [false]);
  const again = await openFolder();
  assert.equal(await again.get("0"), undefined);
  assert.deepEqual([...(kept as FakeFolder).children.keys()], ["model.json"], "the old files are gone");
  await again.put("0", bytes(5));
  assert.deepEqual(await (await openFolder()).get("0"), bytes(5));
});

test("parameters that were converted differently are converted again, and the model's files stay", async () => {
  const folder = await openFolder();
  await folder.keepParametersOf("version 1", "files");
  for (const key of ["files", "0", "1-32"]) await folder.put(key, bytes(10));
  await folder.markComplete();
  const same = await openFolder();
  await same.keepParametersOf("version 1", "files");
  assert.deepEqual(await same.get("1-32"), bytes(10));
  const other = await openFolder();
  await other.keepParametersOf("version 2", "files");
  for (const one of [other, await openFolder()]) {
    assert.equal(await one.get("0"), undefined);
    assert.equal(await one.get("1-32"), undefined);
    assert.deepEqual(await one.get("files"), bytes(10));
  }
  assert.deepEqual((await listCachedModels()).map(({ isComplete }) => isComplete), [false]);
});

test("a failing disk causes one warning, and loading continues without the cache", async () => {
  const warnings: string[] = [];
  const { warn } = console;
  console.warn = (text: string) => void warnings.push(text);
  try {
    const folder = await openFolder();
    disk.failure = "the disk is broken";
    for (const key of ["0", "1"]) await folder.put(key, bytes(10));
    await folder.markComplete();
    assert.deepEqual(warnings, ["jerboa: the model is not kept in this browser: the disk is broken"]);
    assert.equal((await listCachedModels())[0]?.isComplete, false);
    assert.equal(await ModelFolder.open("https://models.test/other/", "f32"), undefined);
    assert.equal(warnings.length, 2);
  } finally {
    console.warn = warn;
  }
});

test("waiting for another tab is reported, and can be aborted", async () => {
  let finish!: () => void;
  const first = withModelLock(address, () => new Promise<void>((resolve) => (finish = resolve)));
  const control = new AbortController();
  const phases: string[] = [];
  const second = LanguageModel.load(address, { signal: control.signal, onProgress: ({ phase }) => phases.push(phase) });
  while (phases.length === 0) await new Promise((resolve) => setImmediate(resolve));
  control.abort();
  await assert.rejects(second, { name: "AbortError" });
  assert.deepEqual(phases, ["waiting"]);
  finish();
  await first;
});

test("a model is removed from the cache only after it is loaded", async () => {
  const folder = await openFolder();
  let finish!: () => void;
  const loading = withModelLock(address, async () => {
    await new Promise<void>((resolve) => (finish = resolve));
    await folder.put("0", bytes(10)); // fails if the folder is gone
    await folder.markComplete();
    assert.equal((await listCachedModels())[0]?.isComplete, true);
  });
  await new Promise((resolve) => setImmediate(resolve));
  const cleared = clearCachedModels(address);
  await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal((await listCachedModels()).length, 1);
  finish();
  await Promise.all([loading, cleared]);
  assert.deepEqual(await listCachedModels(), []);
});

test("clearing removes the models of one source, of one type of weights, or all", async () => {
  for (const name of ["a", "b"]) for (const weights of ["f32", "int4"]) await (await ModelFolder.open(`https://models.test/${name}/`, weights))!.put("0", bytes(5));
  await clearCachedModels("https://models.test/a/");
  assert.deepEqual((await listCachedModels()).map(({ source }) => source), ["https://models.test/b/", "https://models.test/b/"]);
  await clearCachedModels("https://models.test/b/", "int4");
  assert.deepEqual((await listCachedModels()).map(({ weights }) => weights), ["f32"]);
  await clearCachedModels();
  assert.deepEqual(await listCachedModels(), []);
});

/** A server that records its requests. */
class FakeServer implements ModelSource {
  readonly name = address;
  readonly asked: string[] = [];
  version = "one";
  isReachable = true;
  constructor(private readonly files: Map<string, Blob>) {}

  async read(file: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    this.asked.push(file);
    const found = this.files.get(file);
    return found === undefined ? undefined : new Uint8Array(await found.arrayBuffer());
  }
  async inspect(file: string): Promise<FileFacts | undefined> {
    if (!this.isReachable) throw new TypeError("the network is down");
    const found = this.files.get(file);
    return found === undefined ? undefined : { bytes: found.size, version: this.version };
  }
  async range(file: string, begin: number, end: number): Promise<Uint8Array<ArrayBuffer>> {
    this.asked.push(file);
    return new Uint8Array(await this.files.get(file)!.slice(begin, end).arrayBuffer());
  }
}

test("a cached model is loaded without its server, and fetched again if a file has changed", () => withDevice(async (device) => {
  const server = new FakeServer(goldenFiles("llama"));
  const load = async () => {
    server.asked.length = 0;
    const model = await LanguageModel.load(server, { device, context: 64, sequences: 2 });
    const { tokens } = await model.continueTokens([3, 4, 5], { maxTokens: 4, sampling: { temperature: 0 } }).result;
    model.dispose();
    return tokens;
  };
  const tokens = await load();
  assert.ok(server.asked.length > 3);
  assert.deepEqual(await load(), tokens);
  assert.deepEqual(server.asked, [], "the cache is up to date");
  server.isReachable = false;
  assert.deepEqual(await load(), tokens);
  server.isReachable = true;
  server.version = "two";
  assert.deepEqual(await load(), tokens);
  assert.ok(server.asked.filter((file) => file === "model.safetensors").length > 3, "weights of the new version");
  assert.deepEqual(await load(), tokens);
  assert.deepEqual(server.asked, []);
}));

test("a load that is aborted writes nothing once the next one may begin", () => withDevice(async (device) => {
  const options = { device, context: 64, sequences: 2 };
  const server = new FakeServer(goldenFiles("llama"));
  const control = new AbortController();
  let isHeld = false;
  const onProgress: LoadOptions["onProgress"] = ({ phase, loaded }) => {
    if (phase === "weights" && loaded > 0 && !isHeld) disk.closeGate(); // before the next part is written
    isHeld ||= phase === "weights" && loaded > 0;
  };
  let hasEnded = false;
  const aborted = LanguageModel.load(server, { ...options, onProgress, signal: control.signal }).finally(() => (hasEnded = true));
  aborted.catch(() => undefined);
  await disk.holds();
  control.abort();
  const next = LanguageModel.load(server, options);
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.ok(!hasEnded, "its write is under way");
  disk.openGate();
  await assert.rejects(aborted, { name: "AbortError" });
  (await next).dispose();
  const [kept] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  const keys = [...(kept as FakeFolder).children.keys()].map((name) => name.split(".")[0]);
  assert.equal(new Set(keys).size, keys.length);
  assert.deepEqual((await listCachedModels()).map(({ isComplete }) => isComplete), [true]);
}));

test("aborting a load while weights are fetched causes no further error", async () => {
  const unhandled: unknown[] = [];
  const listen = (reason: unknown) => void unhandled.push(reason);
  process.on("unhandledRejection", listen);
  try {
    const signal = AbortSignal.abort();
    const source = { range: async () => signal.throwIfAborted() };
    const read = { name: "w", tensors: [{ name: "w", file: "model.safetensors", begin: 0, bytes: 4 }], rows: 0 };
    await assert.rejects(loadWeights({ source, signal, onBytes: () => undefined } as unknown as WeightsJob, [read]), { name: "AbortError" });
    await new Promise((resolve) => setTimeout(resolve, 5));
    assert.deepEqual(unhandled, []);
  } finally {
    process.off("unhandledRejection", listen);
  }
});

/** The contents of the cache after a load, in the order of the names. */
async function keptBytes(options: LoadOptions): Promise<Uint8Array[]> {
  (await LanguageModel.load(new FakeServer(goldenFiles("llama")), options)).dispose();
  const [kept] = (disk.root.children.get("jerboa-models") as FakeFolder).children.values();
  const files = [...(kept as FakeFolder).children].filter(([name]) => /^\d.*\.bin$/.test(name)).sort(([a], [b]) => (a < b ? -1 : 1));
  return files.map(([, file]) => (file as FakeFile).bytes);
}

// If parameters are deliberately stored in another way, update the digest and raise the cache's format.
test("parameters are kept in the format that the cache names", () => withDevice(async (device) => {
  const hash = createHash("sha256");
  for (const weights of ["f32", "int4"] as const) {
    disk = new Disk();
    for (const bytes of await keptBytes({ device, context: 64, sequences: 2, weights })) hash.update(bytes);
  }
  assert.deepEqual([cacheFormat, hash.digest("hex").slice(0, 16)], [2, "6bcc70d6a26a0262"], "raise cacheFormat in model_cache.ts, and write the new digest here");
}));

test("files and models without a cache need no lock", () => withDevice(async (device) => {
  const options = { device, context: 64, sequences: 2 };
  (await LanguageModel.load(goldenFiles("llama"), options)).dispose();
  (await LanguageModel.load(new FakeServer(goldenFiles("llama")), { ...options, cache: false })).dispose();
  assert.deepEqual([locks.asked, disk.used()], [[], 0]);
}));

test("loading ends as soon as it is aborted, in every phase, and leaves no memory behind", () => withDevice(async (device) => {
  const create = device.createBuffer.bind(device);
  const live = new Set<GPUBuffer>();
  device.createBuffer = (descriptor) => {
    const buffer = create(descriptor);
    live.add(buffer);
    const destroy = buffer.destroy.bind(buffer);
    buffer.destroy = () => {
      live.delete(buffer);
      return destroy();
    };
    return buffer;
  };
  try {
    for (const phase of ["files", "compiling", "weights"]) {
      const control = new AbortController();
      const seen: string[] = [];
      const onProgress: LoadOptions["onProgress"] = (progress) => {
        seen.push(progress.phase);
        if (progress.phase === phase) setImmediate(() => control.abort());
      };
      await assert.rejects(LanguageModel.load(goldenFiles("llama"), { device, context: 64, sequences: 2, signal: control.signal, onProgress }), { name: "AbortError" }, phase);
      assert.ok(!seen.includes("ready"), phase);
      for (const began = performance.now(); performance.now() - began < 60_000 && live.size > 0; ) await new Promise((resolve) => setTimeout(resolve, 10));
      assert.equal(live.size, 0, phase);
    }
  } finally {
    device.createBuffer = create;
  }
}));
