// The page that `jerboa inspect --html` writes, in Debian's Chromium.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

// The server's tests have it already.
const { chromium } = createRequire(new URL("../server/package.json", import.meta.url))("playwright-core");
const programs = ["chromium", "chromium-browser", "google-chrome"].flatMap((name) => [`/usr/bin/${name}`, `/usr/local/bin/${name}`]);
const executablePath = process.env.JERBOA_CHROMIUM ?? programs.find((path) => existsSync(path));
assert.ok(executablePath, "there is no Chromium: ./dev setup installs it, or set JERBOA_CHROMIUM");
const model = fileURLToPath(new URL("../data/goldens/llama", import.meta.url));

test("the page opens without errors or requests, unfolds and fits a phone", async () => {
  const folder = mkdtempSync(join(tmpdir(), "jerboa-inspect-"));
  const browser = await chromium.launch({ executablePath, args: ["--headless", "--no-sandbox"] });
  try {
    const file = join(folder, "page.html");
    execFileSync(process.env.JERBOA, ["inspect", model, "--html", file, "--statistics", "--profile", "cpu"], { stdio: "ignore" });
    const page = await browser.newPage({ viewport: { width: 390, height: 800 } });
    const complaints = [], requests = [];
    page.on("console", (message) => complaints.push(message.text()));
    page.on("pageerror", (error) => complaints.push(error.message));
    page.on("request", (request) => requests.push(request.url()));
    await page.goto(`file://${file}`);
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [`file://${file}`]);
    const kernel = page.locator("details", { hasText: "@compute" }).last();
    await kernel.evaluate((element) => {
      for (let outer = element.parentElement; outer; outer = outer.parentElement) if (outer.tagName === "DETAILS") outer.open = true;
    });
    assert.equal(await kernel.getByText("@compute").first().isVisible(), false);
    await kernel.locator("summary").first().click();
    assert.equal(await kernel.getByText("@compute").first().isVisible(), true);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 390, `the page is ${width} pixels wide on a phone of 390`);
  } finally {
    await browser.close();
    rmSync(folder, { recursive: true });
  }
});
