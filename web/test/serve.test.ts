import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { serve } from "../tools/serve.js";

const program = fileURLToPath(new URL("../tools/serve.js", import.meta.url));
const run = (...given: string[]) => spawnSync(process.execPath, [program, ...given], { encoding: "utf8", timeout: 120_000 });

test("a port that is in use or invalid is reported in one line", async () => {
  const { server } = await serve({});
  const { port } = server.address() as AddressInfo;
  const busy = run(".", String(port));
  const asWeb = spawnSync(process.execPath, [program, ".", ""], { encoding: "utf8", timeout: 120_000, env: { ...process.env, PORT: String(port) } });
  server.close();
  assert.equal(busy.status, 1);
  assert.equal(asWeb.stderr, `serve: port ${port} is in use: choose another one, as in PORT=${port + 1} ./dev web\n`);
  assert.match(busy.stderr, new RegExp(`^serve: port ${port} is in use: choose another one, as in node dist/tools/serve.js FOLDER ${port + 1}\\n$`));
  assert.match(run(".", "eighty").stderr, /^serve: eighty is not a port: [^\n]*\n$/);
});

test("files are served in parts, and nothing outside of the folders is", async () => {
  const { server, address } = await serve({ models: fileURLToPath(new URL("../..", import.meta.url)) });
  const whole = await (await fetch(`${address}/models/package.json`)).text();
  const part = await fetch(`${address}/models/package.json`, { headers: { range: "bytes=2-9" } });
  assert.equal(part.status, 206);
  assert.equal(part.headers.get("content-range"), `bytes 2-9/${whole.length}`);
  assert.equal(await part.text(), whole.slice(2, 10));
  assert.deepEqual(await (await fetch(`${address}/models/index.json`)).json(), []);
  for (const path of ["/models/..%2f..%2fREADME.md", "/programs/manifest.json", "/etc/passwd", "/dist/", "/page/none.html"]) assert.equal((await fetch(address + path)).status, 404, path);
  assert.equal((await fetch(`${address}/page/%ff`)).status, 400);
  server.close();
});
