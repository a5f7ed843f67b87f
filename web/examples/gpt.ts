import { type Dim, type Tensor, arange, attention, crossEntropy, gelu, mean, nn, split } from "../src/graph/index.js";

// The character GPT of examples/gpt.h, in TypeScript: the same names, shapes and initial values.

export interface GptSizes {
  readonly vocabulary?: number;
  readonly width: number;
  readonly layers: number;
  readonly heads: number;
  readonly context: number;
  /** Whether the output layer shares the embedding's table; true by default. */
  readonly isTied?: boolean;
}

class Block {
  readonly ln1: nn.LayerNorm;
  readonly ln2: nn.LayerNorm;
  readonly qkv: nn.Linear;
  readonly proj: nn.Linear;
  readonly up: nn.Linear;
  readonly down: nn.Linear;

  constructor(
    width: number,
    private readonly heads: number,
  ) {
    this.ln1 = new nn.LayerNorm(width);
    this.ln2 = new nn.LayerNorm(width);
    this.qkv = new nn.Linear(width, 3 * width);
    this.proj = new nn.Linear(width, width);
    this.up = new nn.Linear(width, 4 * width);
    this.down = new nn.Linear(4 * width, width);
  }

  call(x: Tensor): Tensor {
    const [q, k, v] = split(this.qkv.call(this.ln1.call(x)), 3) as [Tensor, Tensor, Tensor];
    const attended = x.add(this.proj.call(attention(q, k, v, { heads: this.heads, causal: true })));
    return attended.add(this.down.call(gelu(this.up.call(this.ln2.call(attended)))));
  }
}

export class Gpt {
  readonly tok: nn.Embedding;
  readonly pos: nn.Embedding;
  readonly blocks: readonly Block[];
  readonly norm: nn.LayerNorm;
  readonly head?: nn.Linear;

  constructor({ vocabulary = 256, width, layers, heads, context, isTied = true }: GptSizes) {
    this.tok = new nn.Embedding(vocabulary, width);
    this.pos = new nn.Embedding(context, width);
    this.blocks = nn.stack(layers, () => new Block(width, heads));
    this.norm = new nn.LayerNorm(width);
    if (!isTied) this.head = new nn.Linear(width, vocabulary, { bias: false });
  }

  call(ids: Tensor): Tensor {
    const length: Dim = ids.dim(-1);
    let x = this.tok.call(ids).add(this.pos.call(arange(length)));
    for (const block of this.blocks) x = block.call(x);
    const normed = this.norm.call(x);
    return this.head?.call(normed) ?? this.tok.logits(normed);
  }
}

export function nextTokenLoss(gpt: { call(ids: Tensor): Tensor }, { ids, targets }: { ids: Tensor; targets: Tensor }): Tensor {
  return mean(crossEntropy(gpt.call(ids), targets));
}
