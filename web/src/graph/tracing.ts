import type { CompilerModule } from "../compiler/module.js";
import { described } from "../checks.js";
import { GraphError, JerboaError, UsageError } from "../errors.js";
import type { DType } from "../tensor.js";
import { Parameter } from "./parameter.js";

// Graphs are built in C++, one call per op, which infers shapes and reports errors at once. TypeScript only has
// handles.

/** A size: a number, or text over symbols that the inputs declare, such as "T" or "2*T+1". */
export type Dim = number | string;

/** The type of ops' operands. A number takes the type of the other operand. */
export type Operand = Tensor | Parameter | number;

/** A handle to a tensor of the graph that is being traced. */
export class Tensor {
  constructor(
    /** @internal */ readonly graph: TracedGraph,
    /** @internal */ readonly id: number,
    readonly dtype: DType,
    readonly shape: readonly Dim[],
  ) {}

  get rank(): number {
    return this.shape.length;
  }
  /** A size; a negative axis counts from the end. */
  dim(axis: number): Dim {
    const size = this.shape.at(axis);
    if (size === undefined || !Number.isInteger(axis)) throw new UsageError(`dim: axis ${axis} is out of range for [${this.shape.join(", ")}]`);
    return size;
  }
  /** Names the tensor in listings and profiles. */
  named(name: string): Tensor {
    return applied("name", [this], { name });
  }

  add(other: Operand): Tensor {
    return applied("add", [this, other]);
  }
  sub(other: Operand): Tensor {
    return applied("sub", [this, other]);
  }
  mul(other: Operand): Tensor {
    return applied("mul", [this, other]);
  }
  div(other: Operand): Tensor {
    return applied("div", [this, other]);
  }
  neg(): Tensor {
    return applied("neg", [this]);
  }
  reshape(shape: readonly Dim[]): Tensor {
    return applied("reshape", [this], { shape });
  }
}

interface Reply {
  readonly tensors: readonly { readonly id: number; readonly dtype: DType; readonly shape: readonly Dim[] }[];
}

/** Attributes and other settings by name. */
type Options = object;

let current: TracedGraph | undefined;
let currentModule = "";

/** The graph that ops append to. Throws GraphError outside of a trace. */
export function currentGraph(what: string): TracedGraph {
  if (current === undefined) throw new GraphError(`${what}: ops work only inside trace(), a model's forward function or a loss`);
  return current;
}

/** Prefixes errors of ops in `body` with the name of this module: "blocks.3.qkv: matmul: …". */
export function inModule<T>(module: string, body: () => T): T {
  const outer = currentModule;
  currentModule = module;
  try {
    return body();
  } finally {
    currentModule = outer;
  }
}

/** A graph under construction. */
export class TracedGraph {
  private readonly handle: number;
  private freed = false;

  constructor(
    private readonly module: CompilerModule,
    readonly isTraining: boolean,
  ) {
    this.handle = module.handle("jerboa_graph_create", JSON.stringify({ training: isTraining }));
  }

  /** Runs `body` with this as the graph that ops append to. */
  trace<T>(body: () => T): T {
    const outer = current;
    current = this;
    try {
      const result = body();
      if (result instanceof Promise) throw new UsageError("a model's function must not be asynchronous: ops are added as it runs");
      return result;
    } finally {
      current = outer;
    }
  }

  call(name: string, operands: readonly (Operand | undefined)[], options: Options): Tensor[] {
    if (this.freed) throw new GraphError(`${name}: the graph was freed`);
    const call = {
      function: name,
      operands: operands.map((operand, i) => this.operand(operand, name, i)),
      options: encoded(options),
      site: callSite(),
      module: currentModule,
    };
    const { tensors } = this.module.json("jerboa_graph_call", this.handle, JSON.stringify(call)) as Reply;
    return tensors.map(({ id, dtype, shape }) => new Tensor(this, id, dtype, shape));
  }

  /** The graph as JSON, for a compiler. */
  forward(options: Options = {}): unknown {
    return this.module.json("jerboa_graph_forward", this.handle, JSON.stringify(encoded(options)));
  }

  /** The graph of a training step as JSON; this graph's output "loss" is the loss. */
  training(options: Options): unknown {
    return this.module.json("jerboa_graph_training", this.handle, JSON.stringify(encoded(options)));
  }

  free(): void {
    if (!this.freed) this.module.number("jerboa_graph_free", this.handle);
    this.freed = true;
  }

  private operand(operand: Operand | undefined, name: string, number: number): unknown {
    if (operand === undefined) return null;
    if (typeof operand === "number") return { number: encodedNumber(operand) };
    if (operand instanceof Parameter) return operand.tensor().id;
    if (operand instanceof Tensor) {
      if (operand.graph !== this) throw new GraphError(`${name}: operand ${number + 1} belongs to another graph, not the one being traced`);
      return operand.id;
    }
    throw new UsageError(`${name}: operand ${number + 1} must be a tensor, a parameter or a number, not ${described(operand)}`);
  }
}

/** The results of a function of the C++ library. */
export function results(name: string, operands: readonly (Operand | undefined)[], options: Options = {}): Tensor[] {
  return currentGraph(name).call(name, operands, options);
}

/** The same for a function with one result. */
export function applied(name: string, operands: readonly (Operand | undefined)[], options: Options = {}): Tensor {
  const all = results(name, operands, options);
  if (all.length !== 1) throw new JerboaError(`${name} has ${all.length} results`);
  return all[0]!;
}

/** An object without some of its fields. */
export function without<T extends object, K extends keyof T>(options: T, names: readonly K[]): Omit<T, K> {
  const rest: Partial<T> = { ...options };
  for (const name of names) delete rest[name];
  return rest as Omit<T, K>;
}

function encodedNumber(value: number): number | string {
  if (Number.isFinite(value)) return value;
  return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

// Converts names to those of C++; undefined fields are left out.
function encoded(value: unknown): unknown {
  if (typeof value === "number") return encodedNumber(value);
  if (Array.isArray(value)) return value.map(encoded);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  const snakeCase = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  // The names of symbols belong to the user.
  return Object.fromEntries(fields.map(([name, field]) => [snakeCase(name), name === "symbols" ? field : encoded(field)]));
}

const ownFolder = new URL(".", import.meta.url).href;

/** The line of the caller's code: "model.js:41". Empty where a bundler has merged it with this package. */
export function callSite(): string {
  for (const line of new Error().stack?.split("\n") ?? []) {
    const found = /((?:[a-z]+:\/\/|\/)[^()\s]*):(\d+):\d+\)?$/.exec(line);
    if (found === null || found[1]!.startsWith(ownFolder) || found[1] === import.meta.url) continue;
    return `${found[1]!.split(/[/\\]/).at(-1)}:${found[2]}`;
  }
  return "";
}
