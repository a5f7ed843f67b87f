import { isSoftwareDevice } from "./software.js";

// npm `webgpu` polls for results in a loop that never sleeps. A software driver computes on the same cores, of which
// the loop takes one: on two cores, everything took twice as long. So while a result is awaited, this thread sleeps
// briefly in every turn of the loop, which delays other work of the process by at most that long.

const napMilliseconds = 0.3;
const turnsWithout = 8; // results that are ready at once are not delayed

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

  /** Call this when awaiting a result; call the returned function when it has arrived. */
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
