import { asBytes, described } from "./checks.js";
import { Gpu, requireSupport } from "./device.js";
import { UsageError } from "./errors.js";
import { type Entry, type PersistentTensor, type ProgramFile, readProgramFile } from "./program_file.js";
import { Session, type SessionOptions } from "./session.js";

/**
 * A program that the C++ library compiled for WebGPU.
 *
 *     const program = await Program.load(await openDevice(), bytes);
 *     const session = await program.createSession({ seed: 1 });
 *     const out = await session.run("step", { ids, targets });
 *     const loss = await out.number("loss");
 */
export class Program {
  private constructor(
    private readonly gpu: Gpu,
    private readonly file: ProgramFile,
  ) {}

  /** Throws FileError for a damaged file, and UnsupportedError that names what the device lacks. */
  static async load(device: GPUDevice, bytes: Uint8Array | ArrayBuffer): Promise<Program> {
    if (typeof device?.createBuffer !== "function") throw new UsageError(`a program is loaded on a GPUDevice, not on ${described(device)}: see openDevice`);
    const gpu = Gpu.of(device);
    gpu.check();
    const file = readProgramFile(asBytes(bytes, "a program"));
    requireSupport(device, file.entries);
    return new Program(gpu, file);
  }

  get entries(): readonly Entry[] {
    return this.file.entries;
  }
  get storage(): readonly PersistentTensor[] {
    return this.file.storage;
  }

  /** A session has its own storage and compiled entries. Sessions on one device share pipelines. */
  createSession(options: SessionOptions = {}): Promise<Session> {
    return Session.create(this.gpu, this.file, options);
  }

  /** Adds the entries to a session on the same device, where they share parameters and states by name. */
  addTo(session: Session): Promise<void> {
    return session.add(this.file);
  }
}
