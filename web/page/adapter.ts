import { byId } from "./dom.js";

// Which device a page runs on, in words. The compiler decides by the same names (names_software_driver).

export interface AdapterFacts {
  readonly name: string;
  /** Whether it is a driver that computes on the CPU. */
  readonly isSoftware: boolean;
}

export function describeAdapter(device: GPUDevice): AdapterFacts {
  const { description, vendor, architecture, isFallbackAdapter } = device.adapterInfo as GPUAdapterInfo & { readonly isFallbackAdapter?: boolean };
  const name = description || [vendor, architecture].filter(Boolean).join(" ") || "a graphics device";
  return { name, isSoftware: isFallbackAdapter === true || /llvmpipe|lavapipe|swiftshader|basic render driver/i.test(`${name} ${architecture}`) };
}

/** Fills the mark in a page's head. */
export function showAdapter({ name, isSoftware }: AdapterFacts): void {
  const mark = byId("adapter");
  mark.textContent = isSoftware ? `${name} · software` : name;
  mark.title = isSoftware ? `${name} is a software driver: it computes on the CPU, much slower than a graphics device would` : name;
  mark.classList.toggle("software", isSoftware);
  mark.hidden = false;
}
