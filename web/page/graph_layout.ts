import type { ViewNode } from "./graph_model.js";

// Positions of the nodes of a graph: each below everything that it reads, and close to it horizontally.

export interface Layout {
  readonly places: readonly { readonly x: number; readonly y: number }[];
  readonly width: number;
  readonly height: number;
}

export const nodeSize = { width: 132, height: 34 };
const gap = { x: 18, y: 30 };
const sweeps = 6;

export function layOut(nodes: readonly ViewNode[]): Layout {
  const ranks = rankOf(nodes);
  const rows: number[][] = [];
  nodes.forEach((node) => (rows[ranks[node.number]!] ??= []).push(node.number));
  const xs = nodes.map(() => 0);
  const pitch = nodeSize.width + gap.x;
  for (const row of rows) row.forEach((number, i) => (xs[number] = (i - (row.length - 1) / 2) * pitch));
  for (let sweep = 0; sweep < sweeps; ++sweep) {
    const isDown = sweep % 2 === 0;
    for (const row of isDown ? rows : rows.toReversed()) {
      const wanted = new Map(row.map((number) => [number, meanOf((isDown ? nodes[number]!.before : nodes[number]!.after).map((other) => xs[other]!), xs[number]!)]));
      row.sort((a, b) => wanted.get(a)! - wanted.get(b)!);
      spread(row, wanted, xs, pitch);
    }
  }
  const left = Math.min(0, ...xs);
  const places = nodes.map((node) => ({ x: xs[node.number]! - left + gap.x, y: ranks[node.number]! * (nodeSize.height + gap.y) + gap.y }));
  return {
    places,
    width: Math.max(0, ...places.map(({ x }) => x)) + nodeSize.width + gap.x,
    height: rows.length * (nodeSize.height + gap.y) + gap.y,
  };
}

/** The length of the longest path to each node. A node that reads only inputs is placed near its first reader. */
function rankOf(nodes: readonly ViewNode[]): number[] {
  const ranks: number[] = [];
  for (const node of nodes) ranks[node.number] = Math.max(-1, ...node.before.map((other) => ranks[other]!)) + 1;
  for (const node of nodes.toReversed())
    if (node.after.length > 0 && node.before.length === 0) ranks[node.number] = Math.max(0, Math.min(...node.after.map((other) => ranks[other]!)) - 1);
  return ranks;
}

const meanOf = (values: readonly number[], otherwise: number) => (values.length === 0 ? otherwise : values.reduce((a, b) => a + b, 0) / values.length);

// Places nodes as close to their wanted positions as their neighbours allow, then shifts the row so that it is not
// pushed to one side.
function spread(row: readonly number[], wanted: ReadonlyMap<number, number>, xs: number[], pitch: number): void {
  let end = -Infinity;
  for (const number of row) {
    xs[number] = Math.max(wanted.get(number)!, end);
    end = xs[number]! + pitch;
  }
  const shift = meanOf(row.map((number) => wanted.get(number)! - xs[number]!), 0);
  for (const number of row) xs[number]! += shift;
}
