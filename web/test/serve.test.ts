import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { serve } from "../tools/serve.js";

const program = fileURLToPath(new URL("../tools/serve.js", import.meta.url));
const run = (...given: string[]) => spawnSync(process.execPath, [program, ...given], { encoding: "utf8", timeout: 20_000 });

test("a port that is in use, or is none, is one line", async () => {
  const { server } = await serve(undefined);
  const { port } = server.address() as AddressInfo;
  const busy = run(".", String(port));
  server.close();
  assert.equal(busy.status, 1);
  assert.match(busy.stderr, new RegExp(`^serve: port ${port} is in use: choose another one, [^\\n]*\\n$`));
  assert.match(run(".", "eighty").stderr, /^serve: eighty is not a port: [^\n]*\n$/);
});
