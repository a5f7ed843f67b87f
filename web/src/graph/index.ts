export * from "./functions.js";
export type { Batch, InputSpec, InputSpecs, Inputs } from "./inputs.js";
export * as nn from "./nn.js";
export * from "./ops.js";
export * from "./optimizer.js";
export { Parameter, type ParameterOptions, assignPaths, init } from "./parameter.js";
export { type Dim, type Operand, Tensor, TracedGraph } from "./tracing.js";
export { type Forward, ForwardPass, type Loss, type StepResult, Trainer, type TrainerOptions } from "./trainer.js";
