import { isSoftwareDevice } from "./software.js";

// npm `webgpu` looks for results in a loop that never sleeps. A software driver computes on the same cores, of which the loop
// takes one: on two cores, everything took twice as long. So while a result is awaited, this thread sleeps a little in every
// turn of the loop; other work of the process is at most that much later.

const napMilliseconds = 0.3;
const turnsWithout = 8; // what is there at once is not delayed

export const isNode = (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node !== undefined;

export class Naps {
  private readonly areNeeded: boolean;
  private waits = 0;
  private turns = 0;
  private isScheduled = false;
  private clock: Int32Array | undefined;

  constructor(device: GPUDevice) {
    this.areNeeded = isNode && isSoftwareDevice(device);
  }

  /** Something is awaited; the function that this returns says that it is there. */
  begin(): () => void {
    if (!this.areNeeded) return () => undefined;
    this.turns = 0;
    ++this.waits;
    this.schedule();
    return () => void --this.waits;
  }

  private schedule(): void {
    if (!this.isScheduled) setImmediate(this.turn);
    this.isScheduled = true;
  }

  private readonly turn = (): void => {
    this.isScheduled = false;
    if (this.waits === 0) return;
    if (++this.turns > turnsWithout) Atomics.wait((this.clock ??= new Int32Array(new SharedArrayBuffer(4))), 0, 0, napMilliseconds);
    this.schedule();
  };
}
