// `jerboa` as a command, and the reference server over both transports.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const program = process.env.JERBOA ?? join(here, "../../build/release/bin/jerboa");
export const everything = join(here, "node_modules/@modelcontextprotocol/server-everything/dist/index.js");

export const folder = mkdtempSync(join(tmpdir(), "jerboa-mcp-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));

/** A configuration file with these servers. */
export function config(mcpServers, name = "mcp.json") {
  const path = join(folder, name);
  writeFileSync(path, JSON.stringify({ mcpServers }));
  return path;
}

/** Runs jerboa to its end. `signal` is sent when `when` is true. */
export function jerboa(args, { env = {}, signal, when } = {}) {
  return new Promise((resolve) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } });
    const result = { out: "", err: "" };
    const watching = signal && setInterval(() => when() && child.kill(signal) && clearInterval(watching), 50);
    child.stdout.on("data", (data) => (result.out += data));
    child.stderr.on("data", (data) => (result.err += data));
    child.on("close", (code) => {
      clearInterval(watching);
      resolve({ ...result, code });
    });
  });
}

const freePort = () =>
  new Promise((resolve) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** The reference server over streamable HTTP. */
export async function serveEverything() {
  // Another program may take the port before the server does.
  for (let attempt = 0; attempt < 5; ++attempt) {
    const server = await tryToServe(await freePort());
    if (server) return server;
  }
  throw new Error("the reference server finds no free port");
}

async function tryToServe(port) {
  const child = spawn("node", [everything, "streamableHttp"], { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, PORT: String(port) } });
  let log = "";
  child.stdout.on("data", (data) => (log += data));
  const listens = await new Promise((resolve) => {
    child.stderr.on("data", (data) => String(data).includes("listening") && resolve(true));
    child.on("exit", () => resolve(false));
  });
  if (!listens) return undefined;
  return { url: `http://127.0.0.1:${port}/mcp`, log: () => log, stop: () => child.kill("SIGKILL") };
}
