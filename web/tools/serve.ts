import { readFile } from "node:fs/promises";
import { type Server, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

// Serves the page, and under /programs/ a folder with an exported program, on this machine only:
//   node dist/tools/serve.js [FOLDER] [PORT]

const types: Readonly<Record<string, string>> = {
  ".css": "text/css; charset=utf-8",
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".json": "application/json",
  ".txt": "text/plain; charset=utf-8",
  ".wasm": "application/wasm",
};
const web = fileURLToPath(new URL("../..", import.meta.url));

function fileOf(path: string, programs: string | undefined): string | undefined {
  const clean = normalize(decodeURIComponent(path)).replaceAll("\\", "/");
  if (clean.includes("..")) return undefined;
  if (clean.startsWith("/programs/")) return programs === undefined ? undefined : join(programs, clean.slice("/programs/".length));
  return /^\/(page|dist)\//.test(clean) ? join(web, clean) : undefined;
}

export async function serve(programs: string | undefined, port = 0): Promise<{ server: Server; address: string }> {
  const server = createServer(async (request, response) => {
    if (request.url === "/") {
      response.writeHead(302, { location: "/page/index.html" }).end();
      return;
    }
    try {
      const file = fileOf(new URL(request.url ?? "/", "http://127.0.0.1").pathname, programs);
      if (file === undefined) throw new Error("not served");
      const content = await readFile(file);
      response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream", "cache-control": "no-cache" });
      response.end(content);
    } catch {
      response.writeHead(404, { "content-type": "text/plain" });
      response.end("not found");
    }
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  return { server, address: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const port = Number(process.argv[3] ?? 8000);
  try {
    if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error(`${process.argv[3]} is not a port: they go from 0 to 65535`);
    const { address } = await serve(process.argv[2], port);
    console.log(`${address}/   (Ctrl-C ends it)`);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const busy = `port ${port} is in use: choose another one, as in node dist/tools/serve.js FOLDER ${port + 1}`;
    console.error(`serve: ${code === "EADDRINUSE" ? busy : message}`);
    process.exitCode = 1;
  }
}
