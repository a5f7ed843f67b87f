/** Why a text ended. */
export type FinishReason = "end" | "length" | "stop" | "context" | "deadline" | "cancelled" | "failed";

export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** The log-probability of a token by the model itself: after biases, but before penalties, grammars and temperature. */
export interface TokenLogprobs extends TokenLogprob {
  /** In descending order, as many as requested. */
  readonly likeliest: readonly TokenLogprob[];
}

/** A finished text. */
export interface Generation {
  readonly text: string;
  readonly tokens: readonly number[];
  /** One per token, if requested. */
  readonly logprobs?: readonly TokenLogprobs[];
  readonly reason: FinishReason;
  readonly promptTokens: number;
  /** Prompt tokens that were found in the cache. */
  readonly reused: number;
  /** The number of drafted tokens, and how many of them were accepted. */
  readonly drafted: number;
  readonly accepted: number;
  /** The time until the first token, and for all tokens after it. */
  readonly promptSeconds: number;
  readonly tokenSeconds: number;
}

/**
 * A text as it is written: iterate over its pieces, or await its `result`. Leaving the loop early cancels it.
 *
 *     for await (const piece of model.generate("Once upon a time")) out.textContent += piece;
 */
export class TextStream implements AsyncIterable<string> {
  /** Rejects if the text failed. */
  readonly result: Promise<Generation>;
  private readonly pieces: string[] = [];
  private wake: (() => void) | undefined;
  private error: unknown;
  private ended = false;
  private settle!: { resolve: (generation: Generation) => void; reject: (error: unknown) => void };

  constructor(private readonly stop: () => void) {
    this.result = new Promise((resolve, reject) => (this.settle = { resolve, reject }));
    this.result.catch(() => undefined); // iterating reports the error, too
  }

  /** Ends the text. What was generated so far stays. */
  cancel(): void {
    if (!this.ended) this.stop();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    try {
      for (;;) {
        while (this.pieces.length > 0) yield this.pieces.shift()!;
        if (this.error !== undefined) throw this.error;
        if (this.ended) return;
        await new Promise<void>((resolve) => (this.wake = resolve));
      }
    } finally {
      this.cancel();
    }
  }

  /** Called by the model. */
  push(piece: string): void {
    if (piece !== "") this.pieces.push(piece);
    this.wake?.();
  }
  finish(generation: Generation): void {
    this.ended = true;
    this.settle.resolve(generation);
    this.wake?.();
  }
  fail(error: unknown): void {
    this.ended = true;
    this.error = error;
    this.settle.reject(error);
    this.wake?.();
  }
}
