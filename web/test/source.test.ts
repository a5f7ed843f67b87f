import assert from "node:assert/strict";
import { test } from "node:test";

import { FileError, FileSource, JerboaError, NetworkError, UrlSource, UsageError } from "../src/index.js";

// Sources of files: slow, busy or broken servers, and files that a user picks.

const content = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);
const address = "https://models.test/tiny";

interface Request {
  readonly address: string;
  readonly range: string | undefined;
}

/** A server that answers with the result of `answer` for the number of the request, and otherwise normally. */
function serverOf(answer: (number: number, request: Request) => Response | Error | undefined = () => undefined) {
  const requests: Request[] = [];
  const request = (async (given: string, { headers, signal }: RequestInit) => {
    signal?.throwIfAborted();
    const one = { address: given, range: new Headers(headers).get("range") ?? undefined };
    requests.push(one);
    const answered = answer(requests.length, one) ?? part(one);
    if (answered instanceof Error) throw answered;
    return answered;
  }) as typeof fetch;
  return { requests, source: new UrlSource(address, request) };
}

function part({ range }: Request): Response {
  const [begin, last] = range === undefined ? [0, content.length - 1] : (/bytes=(\d+)-(\d+)/.exec(range)!.slice(1).map(Number) as [number, number]);
  const headers = { "content-range": `bytes ${begin}-${last}/${content.length}`, etag: '"one"' };
  return new Response(content.slice(begin, last + 1), { status: range === undefined ? 200 : 206, headers });
}

/** Sends this many of the requested bytes, then breaks off. */
function broken(request: Request, bytes: number): Response {
  const begin = Number(/bytes=(\d+)/.exec(request.range!)![1]);
  let isSent = false;
  const body = new ReadableStream({
    pull(control) {
      if (isSent) control.error(new TypeError("terminated"));
      else control.enqueue(content.slice(begin, begin + bytes));
      isSent = true;
    },
  });
  return new Response(body, { status: 206 });
}

test("a broken connection is resumed where it ended", async () => {
  const { requests, source } = serverOf((number, request) => (number <= 3 ? broken(request, 100) : undefined));
  assert.deepEqual(await source.range("model.safetensors", 50, 950), content.slice(50, 950));
  assert.deepEqual(requests.map(({ range }) => range), ["bytes=50-949", "bytes=150-949", "bytes=250-949", "bytes=350-949"]);
});

test("requests to a busy server are repeated after the time that it asks for", async () => {
  const busy = (status: number) => new Response("later", { status, headers: { "retry-after": "0.01" } });
  for (const status of [429, 500, 503]) {
    const { requests, source } = serverOf((number) => (number <= 2 ? busy(status) : undefined));
    assert.deepEqual(await source.read("config.json"), content);
    assert.equal(requests.length, 3);
  }
  const { requests, source } = serverOf(() => busy(503));
  await assert.rejects(source.range("model.safetensors", 0, 10), (error) => error instanceof NetworkError && /the server answers 503/.test(error.message));
  assert.equal(requests.length, 6);
  await assert.rejects(serverOf(() => new Response("", { status: 403 })).source.read("config.json"), (error) => error instanceof FileError && /answers 403/.test(error.message));
  assert.equal(await serverOf(() => new Response("", { status: 404 })).source.read("config.json"), undefined);
});

test("a page in place of a file means that the file does not exist", async () => {
  let cancelled = 0;
  const page = () => new Response(new ReadableStream({ cancel: () => void ++cancelled }), { headers: { "content-type": "Text/HTML; charset=utf-8" } });
  const { source } = serverOf(page);
  assert.equal(await source.read("model.safetensors.index.json"), undefined);
  assert.equal(await source.inspect("chat_template.jinja"), undefined);
  await assert.rejects(source.range("model.safetensors", 0, 10), (error) => error instanceof FileError && /the file is gone/.test(error.message));
  assert.equal(cancelled, 3);
  const { source: plain } = serverOf(() => new Response(content, { headers: { "content-type": "text/plain" } }));
  assert.deepEqual(await plain.read("chat_template.jinja"), content);
});

test("aborting the signal ends waiting for a server", async () => {
  const { source } = serverOf(() => new Response("", { status: 503, headers: { "retry-after": "60" } }));
  const control = new AbortController();
  setTimeout(() => control.abort(), 5);
  await assert.rejects(source.read("config.json", control.signal), { name: "AbortError" });
});

test("a failing network is a NetworkError", async () => {
  const { requests, source } = serverOf(() => new TypeError("fetch failed"));
  await assert.rejects(source.inspect("config.json", undefined, false), (error) => error instanceof NetworkError && error instanceof JerboaError && /tiny\/config.json: fetch failed/.test(error.message));
  assert.equal(requests.length, 1, "it is not asked again");
});

test("a reset connection does not end a first load", async () => {
  const { requests, source } = serverOf((number) => (number === 1 ? new TypeError("ECONNRESET") : undefined));
  assert.deepEqual(await source.inspect("config.json"), { bytes: content.length, version: '"one"' });
  assert.equal(requests.length, 2);
});

test("a server without range requests is refused for parts that are not at the beginning", async () => {
  const { source } = serverOf(() => new Response(content, { headers: { "content-length": String(content.length) } }));
  assert.equal((await source.inspect("model.safetensors"))!.bytes, content.length);
  assert.deepEqual(await source.range("model.safetensors", 0, 10), content.slice(0, 10));
  let cancelled = 0;
  const { source: endless } = serverOf(() => new Response(new ReadableStream({ cancel: () => void ++cancelled })));
  await assert.rejects(endless.range("model.safetensors", 10, 20), (error) => error instanceof FileError && /does not answer requests for parts/.test(error.message));
  assert.equal(cancelled, 1, "the rest is not downloaded");
});

test("a URL keeps its query, which applies to every file", async () => {
  const asked: string[] = [];
  const source = new UrlSource("https://models.test/tiny?token=a/b#part", (async (given: string) => (asked.push(given), new Response("{}"))) as unknown as typeof fetch);
  await source.read("config.json");
  assert.deepEqual(asked, ["https://models.test/tiny/config.json?token=a/b"]);
  assert.throws(() => new UrlSource("tiny/"), (error) => error instanceof UsageError && /tiny\/ is not the address of a model's folder; outside of a page/.test(error.message));
});

test("of files with the same name, the least deep one is used", async () => {
  const file = (path: string) => Object.defineProperty(new File([path], path.split("/").at(-1)!), "webkitRelativePath", { value: path });
  for (const paths of [["model/config.json", "model/onnx/config.json"], ["model/onnx/config.json", "model/config.json"]]) {
    const source = new FileSource(paths.map(file));
    assert.equal(new TextDecoder().decode(await source.read("config.json")), "model/config.json");
  }
  assert.throws(() => new FileSource([null as unknown as File]), /must be Files, not null/);
  assert.throws(() => new FileSource([]), UsageError);
});
