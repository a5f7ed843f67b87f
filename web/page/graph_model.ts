import type { Entry } from "../src/index.js";

// A traced graph, read from the compiler's JSON, with the kernel that computes each of its nodes.

export interface GraphTensor {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly (number | string)[];
  readonly storage?: string;
}

export interface GraphNode {
  readonly op: string;
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
  readonly attrs?: Readonly<Record<string, unknown>>;
  readonly site?: string;
}

export interface TracedGraph {
  readonly tensors: readonly GraphTensor[];
  readonly nodes: readonly GraphNode[];
  readonly outputs: Readonly<Record<string, number>>;
}

/** An op of the graph with its operands and its readers, without parameters, constants and the like. */
export interface ViewNode {
  readonly number: number;
  readonly op: string;
  /** The name of its first result. */
  readonly name: string;
  readonly type: string;
  readonly site: string;
  readonly attributes: string;
  /** Parameters, states and constants that it reads. */
  readonly leaves: readonly string[];
  readonly before: readonly number[];
  readonly after: number[];
  /** The step of the program that computes the node; undefined if the compiler has removed it. */
  kernel: number | undefined;
}

const leafOps = new Set(["param_input", "state_input", "const_scalar", "constant", "arange"]);

const typeOf = ({ dtype, shape }: GraphTensor) => `${dtype}[${shape.join(", ")}]`;

export function viewNodes(graph: TracedGraph, entry: Entry | undefined): ViewNode[] {
  const shown = graph.nodes.filter((node) => !leafOps.has(node.op));
  const producer = new Map(shown.flatMap((node, number) => node.outputs.map((tensor) => [tensor, number] as const)));
  const nodes = shown.map((node, number): ViewNode => {
    const result = graph.tensors[node.outputs[0]!]!;
    const inputs = node.inputs.filter((tensor) => tensor >= 0);
    return {
      number,
      op: node.op === "tensor_input" ? "input" : node.op,
      name: result.name,
      type: typeOf(result),
      site: node.site ?? "",
      attributes: Object.entries(node.attrs ?? {}).map(([key, value]) => `${key} ${JSON.stringify(value)}`).join(", "),
      leaves: inputs.filter((tensor) => !producer.has(tensor)).map((tensor) => graph.tensors[tensor]!.name),
      before: [...new Set(inputs.flatMap((tensor) => producer.get(tensor) ?? []))],
      after: [],
      kernel: undefined,
    };
  });
  for (const node of nodes) for (const other of node.before) nodes[other]!.after.push(node.number);
  if (entry !== undefined) assignKernels(nodes, graph, shown, entry);
  return nodes;
}

// A kernel's label names the tensors that it writes. A node without such a kernel is part of the first one that reads
// it.
function assignKernels(nodes: readonly ViewNode[], graph: TracedGraph, shown: readonly GraphNode[], entry: Entry): void {
  const writer = new Map<string, number>();
  entry.steps.forEach((step, number) => {
    for (const name of step.label.split(/[\s+]+/)) if (!writer.has(name)) writer.set(name, number);
  });
  for (const node of nodes.toReversed()) {
    if (node.op === "input") continue;
    const writingKernel = shown[node.number]!.outputs.map((tensor) => writer.get(graph.tensors[tensor]!.name)).find((kernel) => kernel !== undefined);
    const readers = node.after.map((other) => nodes[other]!.kernel).filter((kernel) => kernel !== undefined);
    node.kernel = writingKernel ?? (readers.length === 0 ? undefined : Math.min(...readers));
  }
}
