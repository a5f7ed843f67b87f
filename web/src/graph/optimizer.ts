// Optimizers as data: C++ builds their updates into the graph of a training step.

/** A learning rate that rises to `peak` over `warmup` steps, then falls to `floor` at `total`, where it stays. */
export interface Schedule {
  readonly schedule: "warmup_cosine" | "warmup_linear";
  readonly peak: number;
  readonly warmup: number;
  readonly total: number;
  readonly floor: number;
}
/** A number, a schedule, or the name of an input that gives the rate of every batch. */
export type LearningRate = number | Schedule | { readonly input: string };

export function warmupCosine(peak: number, warmup: number, total: number, floor = 0): Schedule {
  return { schedule: "warmup_cosine", peak, warmup, total, floor };
}
export function warmupLinear(peak: number, warmup: number, total: number, floor = 0): Schedule {
  return { schedule: "warmup_linear", peak, warmup, total, floor };
}

interface Moments {
  /** By default 0.001. */
  readonly lr?: LearningRate;
  readonly beta1?: number;
  readonly beta2?: number;
  readonly eps?: number;
  /** Scales gradients down to this global norm; 0, the default: off. */
  readonly clipNorm?: number;
}
export type Optimizer =
  | (Moments & { readonly kind: "adam" })
  | (Moments & { readonly kind: "adamw"; readonly weightDecay?: number })
  | {
      readonly kind: "sgd";
      readonly lr?: LearningRate;
      readonly momentum?: number;
      readonly nesterov?: boolean;
      readonly weightDecay?: number;
      readonly clipNorm?: number;
    };

export function adam(options: Omit<Extract<Optimizer, { kind: "adam" }>, "kind"> = {}): Optimizer {
  return { kind: "adam", ...options };
}
/** Adam with decoupled weight decay, by default 0.01 of the weights of linear layers, embeddings and convolutions. */
export function adamW(options: Omit<Extract<Optimizer, { kind: "adamw" }>, "kind"> = {}): Optimizer {
  return { kind: "adamw", ...options };
}
export function sgd(options: Omit<Extract<Optimizer, { kind: "sgd" }>, "kind"> = {}): Optimizer {
  return { kind: "sgd", ...options };
}
