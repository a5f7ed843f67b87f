export { type OpenDeviceOptions, openDevice } from "./device.js";
export * from "./errors.js";
export { Program } from "./program.js";
export type { Entry, PersistentTensor, Port } from "./program_file.js";
export type { RunResult } from "./result.js";
export { type SafeTensors, readSafetensors, writeSafetensors } from "./safetensors.js";
export type { Input, RunOptions, Session, SessionOptions } from "./session.js";
export { type DType, type Tensor, type TensorData, tensor } from "./tensor.js";
export { TextData, type TextDataOptions } from "./text_data.js";
