import { Gpu, requireSupport } from "./device.js";
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

  /** Throws FileError for a damaged file, UnsupportedError that names what the device lacks. */
  static async load(device: GPUDevice, bytes: Uint8Array | ArrayBuffer): Promise<Program> {
    const gpu = Gpu.of(device);
    gpu.check();
    const file = readProgramFile(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes));
    requireSupport(device, file.entries);
    return new Program(gpu, file);
  }

  get entries(): readonly Entry[] {
    return this.file.entries;
  }
  get storage(): readonly PersistentTensor[] {
    return this.file.storage;
  }

  /** A session has separate storage and compiled entries. Sessions of one device share pipelines. */
  createSession(options: SessionOptions = {}): Promise<Session> {
    return Session.create(this.gpu, this.file, options);
  }
}
