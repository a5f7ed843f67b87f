import assert from "node:assert/strict";
import { execFile, execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";

import { type Page, chromium } from "playwright-core";

import { serve } from "../tools/serve.js";
import { chromiumPath } from "./chromium_path.js";

// The package as a user gets it: packed by npm, installed into a fresh project (tests/web/fresh), checked by TypeScript, built
// by Vite and opened in Chromium, where a model writes what the native program writes: in the page, in a worker, and under Node.
//   node dist/test/fresh_project.js JERBOA
// JERBOA is the native program. With JERBOA_SOAK_SECONDS, which ./dev test --full sets, real models write too.

const [jerboa = "../build/release/bin/jerboa"] = process.argv.slice(2);
const isFull = process.env["JERBOA_SOAK_SECONDS"] !== undefined;
const template = resolve("../tests/web/fresh");
const run = promisify(execFile);
const work = mkdtempSync(join(tmpdir(), "jerboa-fresh-"));

// In a copy, because packing writes into dist, from which other tests run.
async function pack(): Promise<string> {
  const web = join(work, "repository", "web");
  mkdirSync(join(web, "dist", "src"), { recursive: true });
  cpSync("../LICENSE", join(work, "repository", "LICENSE"));
  for (const name of ["package.json", "README.md", "tsconfig.json", "src", "tools/prepack.mjs"]) cpSync(name, join(web, name), { recursive: true });
  cpSync("dist/src/jerboa.wasm", join(web, "dist", "src", "jerboa.wasm"));
  symlinkSync(resolve("node_modules"), join(web, "node_modules"));
  const { stdout } = await run("npm", ["pack", "--silent", "--pack-destination", work], { cwd: web });
  return join(work, stdout.trim().split("\n").at(-1)!);
}

function checkContents(tarball: string): void {
  const files = execFileSync("tar", ["-tzf", tarball], { encoding: "utf8" }).trim().split("\n").map((name) => name.replace(/^package\//, ""));
  for (const name of ["package.json", "README.md", "LICENSE", "dist/src/jerboa.wasm", "dist/src/compiler/worker.js"]) assert.ok(files.includes(name), `no ${name}`);
  const others = files.filter((name) => !/^(package\.json|README\.md|LICENSE|dist\/src\/.*(\.js|\.d\.ts|jerboa\.wasm))$/.test(name));
  assert.deepEqual(others, [], "files that do not belong into the package");
  assert.deepEqual(files.filter((name) => /test/.test(name)), []);
  const code = files.filter((name) => name.endsWith(".js"));
  assert.deepEqual(code.filter((name) => !files.includes(name.replace(/\.js$/, ".d.ts"))), [], "code without types");
  const readme = execFileSync("tar", ["-xzOf", tarball, "package/README.md"], { encoding: "utf8" });
  assert.doesNotMatch(readme, /\]\((?!https?:|#)/, "links that lead nowhere from the package");
  console.log(`${tarball.split("/").at(-1)!}: ${files.length} files, ${statSync(tarball).size} bytes`);
}

async function install(tarball: string): Promise<string> {
  const project = join(work, "project");
  cpSync(template, project, { recursive: true, filter: (path) => !path.includes("node_modules") });
  await run("cp", ["-al", join(template, "node_modules"), project]).catch(() => run("cp", ["-a", join(template, "node_modules"), project]));
  await run("npm", ["install", "--offline", "--no-audit", "--no-fund", "--no-save", tarball], { cwd: project });
  return project;
}

async function checkTypes(project: string): Promise<void> {
  const bundler = ["--module", "ESNext", "--moduleResolution", "bundler"];
  const node16 = ["--module", "Node16", "--moduleResolution", "node16"];
  const compilers = { typescript: [], "typescript-5.4": ["--types", "@webgpu/types"] }; // which newer ones have themselves
  const all = Object.entries(compilers).flatMap(([compiler, types]) => [bundler, node16].map((options) => ({ compiler, options: [...types, ...options] })));
  const chosen = isFull ? all : [all[0]!, all[3]!];
  await Promise.all(
    chosen.map(async ({ compiler, options }) => {
      const [version, kind] = [JSON.parse(readFileSync(join(project, "node_modules", compiler, "package.json"), "utf8")).version as string, options.at(-1)!];
      const { stdout } = await run(process.execPath, [`node_modules/${compiler}/bin/tsc`, "-p", ".", ...options], { cwd: project }).catch((error: { stdout: string }) => error);
      assert.equal(stdout, "", `TypeScript ${version}, moduleResolution ${kind}`);
      console.log(`TypeScript ${version}, moduleResolution ${kind}: no errors`);
    }),
  );
}

interface Question {
  readonly model: string;
  readonly prompt: string;
  readonly tokens: number;
  readonly command: "generate" | "chat";
  readonly weights?: "int4";
  readonly where?: "page" | "worker";
}

/** Where the built project is, and under models/ the models. */
interface Site {
  readonly project: string;
  readonly models: string;
}

async function ask(page: Page, site: Site, { model, prompt, tokens, weights, where = "page" }: Question): Promise<string> {
  const query = new URLSearchParams({ model: `${site.models}${model}/`, prompt, tokens: String(tokens), where, ...(weights === undefined ? {} : { weights }) });
  await page.goto(`${site.project}index.html?${query}`);
  await page.waitForFunction(() => /^(done|failed)/.test(document.querySelector("#state")!.textContent!), undefined, { timeout: 600_000 });
  assert.equal(await page.textContent("#state"), "done");
  return (await page.textContent("#text"))!;
}

async function natively(models: string, { model, prompt, tokens, command, weights }: Question): Promise<string> {
  const stored = weights === undefined ? [] : ["--weights", weights];
  const { stdout } = await run(jerboa, [command, join(models, model), prompt, "--temperature", "0", "--max-tokens", String(tokens), "--device", "cpu", ...stored]);
  return stdout;
}

/** Through the exports of the package, as an application under Node imports them. */
async function underNode(project: string, models: string, question: Question): Promise<void> {
  const { stdout } = await run(process.execPath, ["node.mjs", import.meta.resolve("webgpu"), join(models, question.model), question.prompt, String(question.tokens)], { cwd: project });
  const { text, loss, hook } = JSON.parse(stdout.trim().split("\n").at(-1)!) as { text: string; loss: number; hook: string };
  assert.equal(text.trim(), (await natively(models, question)).trim());
  assert.ok(loss > 0 && hook === "function");
}

/** The download of a page that only runs compiled programs. */
function checkSmallPage(project: string): void {
  const folder = join(project, "dist-small", "assets");
  // Vite still writes the compiler and its worker, but nothing may refer to them.
  const code = readdirSync(folder).filter((name) => /^(?!worker-).*\.js$/.test(name)).map((name) => readFileSync(join(folder, name)));
  assert.ok(code.every((text) => !/\.wasm|worker-|import\(/.test(text.toString())), "the compiler is not needed");
  const bytes = code.reduce((sum, text) => sum + gzipSync(text, { level: 9 }).length, 0);
  console.log(`a page that opens a device: ${bytes} bytes of JavaScript, gzipped`);
  assert.ok(bytes > 100 && bytes < 3000, `${bytes} bytes`);
}

async function write(page: Page, site: Site, models: string, question: Question): Promise<void> {
  const began = performance.now();
  const [got, wanted] = await Promise.all([ask(page, site, question), natively(models, question)]);
  console.log(`${question.model} at ${site.models}, ${question.weights ?? "as stored"}, in a ${question.where ?? "page"}, ${Math.round(performance.now() - began)} ms: ${JSON.stringify(got)}`);
  assert.equal(got.trim(), wanted.trim());
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/**
 * Vite's own server, which answers with the page if a file does not exist; undefined if it ends because another program
 * took the port in the meantime.
 */
async function preview(project: string): Promise<{ readonly site: Site; readonly stop: () => void } | undefined> {
  const port = await freePort();
  const vite = spawn(process.execPath, ["node_modules/vite/bin/vite.js", "preview", "--host", "127.0.0.1", "--port", String(port), "--strictPort"], { cwd: project, stdio: "ignore" });
  const address = `http://127.0.0.1:${port}/`;
  const began = performance.now();
  const isSlow = () => performance.now() - began > 300_000;
  while (vite.exitCode === null && !isSlow()) {
    const answered = await fetch(`${address}models/none.json`).catch(() => undefined);
    if (answered !== undefined && vite.exitCode === null) {
      assert.match(answered.headers.get("content-type") ?? "", /^text\/html/, "for a file that does not exist");
      return { site: { project: address, models: `${address}models/` }, stop: () => vite.kill() };
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  vite.kill();
  assert.ok(!isSlow(), "vite preview does not answer");
  return undefined;
}

async function previewed(project: string): ReturnType<typeof preview> {
  for (let tries = 0; tries < 3; ++tries) {
    const started = await preview(project);
    if (started !== undefined) return started;
  }
  return undefined;
}

/** The server's tests have a tiny model of bytes; the others come from npm, through `jerboa pull`. */
async function modelsFolder(): Promise<string> {
  if (!isFull) {
    const { makeModel } = (await import(new URL("../../../tests/server/live.js", import.meta.url).href)) as { makeModel(): string };
    const folder = join(work, "models");
    mkdirSync(folder);
    renameSync(makeModel(), join(folder, "tiny"));
    return folder;
  }
  const home = resolve(process.env["JERBOA_HOME"] ?? "../build/home");
  for (const name of ["stories15m", "minimind2-small"])
    if (!existsSync(join(home, "models", name))) await run(jerboa, ["pull", name], { env: { ...process.env, JERBOA_HOME: home } });
  return join(home, "models");
}

const questions: readonly Question[] = isFull
  ? [
      { model: "stories15m", prompt: "Once upon a time", tokens: 40, command: "generate" },
      { model: "minimind2-small", prompt: "Who are you?", tokens: 30, command: "chat" },
    ]
  : [
      { model: "tiny", prompt: "Hello", tokens: 8, command: "chat" },
      { model: "tiny", prompt: "Hello", tokens: 8, command: "chat", weights: "int4", where: "worker" },
    ];

try {
  const tarball = await pack();
  checkContents(tarball);
  const [project, models] = [await install(tarball), await modelsFolder()];
  if (!isFull) cpSync(models, join(project, "public", "models"), { recursive: true });
  const build = (...given: string[]) => run(process.execPath, ["node_modules/vite/bin/vite.js", "build", "--logLevel", "warn", ...given], { cwd: project });
  await Promise.all([
    checkTypes(project),
    build(),
    build("small", "--outDir", "../dist-small", "--base", "./", "--target", "es2022"),
    underNode(project, models, questions.find(({ command }) => command === "chat")!),
  ]);
  checkSmallPage(project);
  const { server, address } = await serve({ programs: join(project, "dist"), models });
  const browser = await chromium.launch({ executablePath: chromiumPath(), args: ["--headless", "--no-sandbox", "--enable-unsafe-webgpu"] });
  try {
    const page = await browser.newPage();
    const problems: string[] = [];
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => void (message.type() === "warning" && problems.push(message.text())));
    for (const question of questions) await write(page, { project: `${address}/programs/`, models: `${address}/models/` }, models, question);
    if (!isFull) {
      const started = await previewed(project);
      assert.ok(started !== undefined, "vite preview finds no port");
      await write(page, started.site, models, questions[0]!).finally(started.stop);
    }
    assert.deepEqual(problems.filter((text) => text.startsWith("jerboa:")), [], "the compiler's worker");
  } finally {
    await browser.close();
    server.close();
  }
} finally {
  rmSync(work, { recursive: true, force: true });
}
