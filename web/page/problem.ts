import { DeviceLostError, JerboaError, OutOfMemoryError, UnsupportedError } from "../src/index.js";
import { byId, make } from "./dom.js";

// The panel #problem: an error, and what a visitor can do about it.

const remedies: readonly (readonly [new (...given: never[]) => Error, string])[] = [
  [UnsupportedError, "Use another device, or export the program again for smaller limits."],
  [DeviceLostError, "Reload the page to open the device again; it continues from the last autosave."],
  [OutOfMemoryError, "Close other pages that use the graphics device, or choose something smaller."],
];
const browsers =
  "WebGPU is in Chrome and Edge from 113, in Safari from 26, and in Firefox from 141 on Windows; on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu.";

function remedyFor(error: unknown): string {
  if (navigator.gpu === undefined) return browsers;
  return remedies.find(([kind]) => error instanceof kind)?.[1] ?? "";
}

export function showProblem(error: unknown): void {
  const message = error instanceof Error ? error.message : String(error);
  const remedy = remedyFor(error);
  byId("problem").replaceChildren(make("strong", "", message.charAt(0).toUpperCase() + message.slice(1)), ...(remedy === "" ? [] : [make("p", "", remedy)]));
  byId("problem").hidden = false;
  if (!(error instanceof JerboaError)) console.error(error);
}

export function hideProblem(): void {
  byId("problem").hidden = true;
}

/** Shows the error of `work`, if it fails. */
export async function guarded(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    showProblem(error);
  }
}
