import assert from "node:assert/strict";
import { existsSync } from "node:fs";

/** Debian's Chromium, or what JERBOA_CHROMIUM names. */
export function chromiumPath(): string {
  const programs = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => [`/usr/bin/${name}`, `/usr/local/bin/${name}`]);
  const found = process.env["JERBOA_CHROMIUM"] ?? programs.find((path) => existsSync(path));
  assert.ok(found !== undefined, "there is no Chromium: ./dev setup installs it, or set JERBOA_CHROMIUM");
  return found;
}
