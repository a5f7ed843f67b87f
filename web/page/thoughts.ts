// Splits a model's output into thoughts, between <think> and </think> at the beginning, and the answer.

const opening = "<think>";
const closing = "</think>";

export interface Piece {
  readonly content: string;
  readonly reasoning: string;
}

/** The number of characters at the end that may be the beginning of a mark. */
function heldBack(text: string, mark: string): number {
  for (let length = Math.min(text.length, mark.length - 1); length > 0; --length) if (mark.startsWith(text.slice(-length))) return length;
  return 0;
}

export class ThoughtSplitter {
  private state: "beginning" | "thinking" | "answering" = "beginning";
  private rest = "";

  push(text: string): Piece {
    this.rest += text;
    if (this.state === "beginning") {
      const begun = this.rest.trimStart();
      if (begun.startsWith(opening)) {
        this.state = "thinking";
        this.rest = begun.slice(opening.length).trimStart();
      } else if (!opening.startsWith(begun)) this.state = "answering";
      else return { content: "", reasoning: "" };
    }
    if (this.state === "answering") return { content: this.take(this.rest.length), reasoning: "" };
    const end = this.rest.indexOf(closing);
    if (end < 0) return { content: "", reasoning: this.take(this.rest.length - heldBack(this.rest, closing)) };
    const reasoning = this.take(end);
    this.rest = this.rest.slice(closing.length).trimStart();
    this.state = "answering";
    return { content: this.take(this.rest.length), reasoning };
  }

  /** Returns what was held back, once the text has ended. */
  finish(): Piece {
    const left = this.take(this.rest.length);
    return this.state === "thinking" ? { content: "", reasoning: left } : { content: left, reasoning: "" };
  }

  private take(length: number): string {
    const taken = this.rest.slice(0, length);
    this.rest = this.rest.slice(length);
    return taken;
  }
}
