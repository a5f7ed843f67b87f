// Before `npm pack`: what the package needs from outside of this folder, and its types for TypeScript before 5.7, in which
// Uint8Array takes no parameter.
import { copyFileSync, existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = "dist/src";
if (!existsSync(join(folder, "jerboa.wasm"))) {
  console.error("dist/src/jerboa.wasm is missing: run ./dev build wasm first");
  process.exit(1);
}
copyFileSync("../LICENSE", "LICENSE");
for (const name of readdirSync(folder, { recursive: true })) {
  if (!name.endsWith(".d.ts")) continue;
  const path = join(folder, name);
  writeFileSync(path, readFileSync(path, "utf8").replaceAll(/\b(Uint8Array)<ArrayBuffer>/g, "$1"));
}
