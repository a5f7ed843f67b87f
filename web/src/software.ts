import { softwareDriverNames } from "./software_drivers.js";

/** Whether the device is a driver that computes on the CPU. */
export function isSoftwareDevice(device: GPUDevice): boolean {
  const info = device.adapterInfo as (GPUAdapterInfo & { readonly isFallbackAdapter?: boolean }) | undefined;
  if (info === undefined) return false;
  const texts = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`.toLowerCase();
  return info.isFallbackAdapter === true || softwareDriverNames.some((name) => texts.includes(name));
}
