import { isSoftwareDevice } from "../src/software.js";
import { byId } from "./dom.js";

// The device that a page runs on, in words.

export interface AdapterFacts {
  readonly name: string;
  /** Whether it is a driver that computes on the CPU. */
  readonly isSoftware: boolean;
}

export function describeAdapter(device: GPUDevice): AdapterFacts {
  const { description, vendor, architecture } = device.adapterInfo;
  const name = description || [vendor, architecture].filter(Boolean).join(" ") || "a graphics device";
  return { name, isSoftware: isSoftwareDevice(device) };
}

/** Shows the device in the page's header. */
export function showAdapter({ name, isSoftware }: AdapterFacts): void {
  const mark = byId("adapter");
  mark.textContent = isSoftware ? `${name} · software` : name;
  mark.title = isSoftware ? `${name} is a software driver: it computes on the CPU, much slower than a graphics device would` : name;
  mark.classList.toggle("software", isSoftware);
  mark.hidden = false;
}
