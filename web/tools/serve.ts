import { createReadStream } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { pipeline } from "node:stream/promises";
import { fileURLToPath } from "node:url";

// Serves the pages, under /programs/ a folder with an exported model, and under /models/ a folder of models to chat with,
// on this machine only:
//   node dist/tools/serve.js [FOLDER] [PORT] [MODELS]
// Without a PORT, or with an empty one, it is that of the environment variable PORT, or 8000.

const types: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
};
const web = fileURLToPath(new URL("../..", import.meta.url));

export interface Folders {
  readonly programs?: string | undefined;
  readonly models?: string | undefined;
}

function fileOf(path: string, { programs, models }: Folders): string | undefined {
  const clean = normalize(decodeURIComponent(path)).replaceAll("\\", "/");
  if (clean.includes("..")) return undefined;
  const inside = (prefix: string, folder: string | undefined) => (folder === undefined ? undefined : join(folder, clean.slice(prefix.length)));
  if (clean.startsWith("/programs/")) return inside("/programs/", programs);
  if (clean.startsWith("/models/")) return inside("/models/", models);
  return /^\/(page|dist)\//.test(clean) ? join(web, clean) : undefined;
}

/** The folders in a folder that are models. */
async function modelsIn(folder: string | undefined): Promise<string[]> {
  if (folder === undefined) return [];
  const names = await readdir(folder).catch(() => []);
  const isModel = await Promise.all(names.map((name) => stat(join(folder, name, "config.json")).then(() => true, () => false)));
  return names.filter((_, i) => isModel[i]).sort();
}

/** The part of a file that a request asks for: weights are read piece by piece. */
function rangeOf(request: IncomingMessage, size: number): { start: number; end: number } | undefined {
  const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  if (match === null) return undefined;
  const start = Number(match[1]);
  const end = match[2] === "" ? size - 1 : Math.min(Number(match[2]), size - 1);
  return start <= end ? { start, end } : undefined;
}

async function answer(request: IncomingMessage, response: ServerResponse, folders: Folders): Promise<void> {
  const { pathname } = new URL(request.url ?? "/", "http://127.0.0.1");
  if (pathname === "/") {
    response.writeHead(302, { location: "/page/index.html" }).end();
    return;
  }
  if (pathname === "/models/index.json") {
    response.writeHead(200, { "content-type": types[".json"]! }).end(JSON.stringify(await modelsIn(folders.models)));
    return;
  }
  const file = fileOf(pathname, folders);
  const facts = file === undefined ? undefined : await stat(file).catch(() => undefined);
  if (file === undefined || facts?.isFile() !== true) {
    response.writeHead(404, { "content-type": "text/plain" }).end("not found");
    return;
  }
  const range = rangeOf(request, facts.size);
  response.writeHead(range === undefined ? 200 : 206, {
    "content-type": types[extname(file)] ?? "application/octet-stream",
    "content-length": range === undefined ? facts.size : range.end - range.start + 1,
    "cache-control": "no-cache",
    "accept-ranges": "bytes",
    "last-modified": facts.mtime.toUTCString(),
    ...(range === undefined ? {} : { "content-range": `bytes ${range.start}-${range.end}/${facts.size}` }),
  });
  await pipeline(createReadStream(file, range ?? {}), response);
}

export async function serve(folders: Folders, port = 0): Promise<{ server: Server; address: string }> {
  const server = createServer((request, response) => {
    answer(request, response, folders).catch(() => {
      if (response.headersSent) response.destroy(); // the client has gone away
      else response.writeHead(400, { "content-type": "text/plain" }).end("not an address");
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  return { server, address: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const isArgument = (process.argv[3] ?? "") !== "";
  const given = isArgument ? process.argv[3]! : process.env["PORT"] || "8000";
  const port = Number(given);
  try {
    if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`${given} is not a port: they go from 0 to 65535`);
    const { address } = await serve({ programs: process.argv[2], models: process.argv[4] }, port);
    console.log(`${address}/   (Ctrl-C ends it)`);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const busy = `port ${port} is in use: choose another one, as in ${isArgument ? `node dist/tools/serve.js FOLDER ${port + 1}` : `PORT=${port + 1} ./dev web`}`;
    console.error(`serve: ${code === "EADDRINUSE" ? busy : message}`);
    process.exitCode = 1;
  }
}
