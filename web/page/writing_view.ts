import { byId, make, makeSvg } from "./dom.js";
import { readable } from "./texts.js";
import type { Choice } from "./trainee.js";

// The generated text, the alternatives at any position, and what the model attended to.

const shownBytes = 8;

interface Cell {
  readonly node: HTMLElement;
  /** The position of its first byte. */
  readonly at: number;
  bytes: number[];
}

const names: Readonly<Record<number, string>> = { 9: "tab", 10: "↵", 13: "↵", 32: "space" };

function nameOf(byte: number): string {
  return names[byte] ?? (byte > 32 && byte < 127 ? String.fromCharCode(byte) : `x${byte.toString(16).padStart(2, "0")}`);
}

/** A continuation byte of UTF-8. */
const isContinuation = (byte: number) => byte >= 0x80 && byte < 0xc0;

export class WritingView {
  private readonly text = byId("text");
  private readonly bars = byId("next");
  private readonly heads = byId("heads");
  private readonly caption = byId("inspected");
  private bytes: number[] = [];
  private cells: Cell[] = [];
  private choices = new Map<number, Choice>();
  /** The position that the visitor chose; undefined: the newest. */
  private pinned: number | undefined;
  private head: readonly [number, number] | undefined;
  private frame = 0;

  constructor() {
    this.text.addEventListener("pointerover", (event) => this.pin(event.target));
    this.text.addEventListener("click", (event) => this.pin(event.target));
    this.text.addEventListener("pointerleave", () => this.pin(null));
  }

  /** Starts a new text after a prompt. */
  begin(prompt: readonly number[]): void {
    this.bytes = [];
    this.cells = [];
    this.choices = new Map();
    this.pinned = undefined;
    this.text.replaceChildren();
    for (const byte of prompt) this.append(byte, "prompt");
  }

  add(choice: Choice): void {
    this.choices.set(this.bytes.length, choice);
    this.append(choice.byte, "written");
    this.text.scrollTop = this.text.scrollHeight;
    this.redraw();
  }

  /** Shows a text without probabilities and attention. */
  showSample(prompt: string, text: string): void {
    this.begin([...new TextEncoder().encode(prompt)]);
    for (const byte of new TextEncoder().encode(text)) this.append(byte, "written");
    this.redraw();
  }

  private append(byte: number, kind: string): void {
    const last = this.cells.at(-1);
    if (last !== undefined && isContinuation(byte) && last.bytes[0]! >= 0xc0) last.bytes.push(byte);
    else {
      const node = make("span", kind);
      this.cells.push({ node, at: this.bytes.length, bytes: [byte] });
      this.text.append(node);
    }
    const cell = this.cells.at(-1)!;
    cell.node.textContent = readable(new TextDecoder().decode(Uint8Array.from(cell.bytes)));
    this.bytes.push(byte);
  }

  private pin(target: EventTarget | null): void {
    const cell = this.cells.find((one) => one.node === target);
    const place = cell !== undefined && this.choices.has(cell.at) ? cell.at : undefined;
    if (place === this.pinned) return;
    this.pinned = place;
    this.redraw();
  }

  private redraw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(): void {
    const place = this.pinned ?? Math.max(-1, ...this.choices.keys());
    const choice = this.choices.get(place);
    byId("inspector").classList.toggle("empty", choice === undefined);
    this.drawShades(place, choice);
    if (choice === undefined) return;
    const before = new TextDecoder().decode(Uint8Array.from(this.bytes.slice(Math.max(0, place - 12), place)));
    this.caption.replaceChildren("after “", make("code", "", readable(before).replace(/\s/g, " ")), "”");
    this.drawBars(choice);
    this.drawHeads(choice);
  }

  // Shades each character by the attention of the chosen head, or by the average over all heads.
  private drawShades(place: number, choice: Choice | undefined): void {
    const weights = choice === undefined ? undefined : this.head === undefined ? mean(choice.attention.flat()) : choice.attention[this.head[0]]?.[this.head[1]];
    const most = weights === undefined ? 0 : weights.reduce((a, b) => Math.max(a, b), 1e-6);
    for (const { node, at } of this.cells) {
      const weight = weights === undefined || at >= place ? 0 : (weights[at - choice!.from] ?? 0) / most;
      node.style.setProperty("--weight", weight > 0.02 ? `${Math.round(weight * 70)}%` : "0%");
      node.classList.toggle("at", at === this.pinned);
    }
  }

  private drawBars({ probabilities, byte }: Choice): void {
    const likeliest = [...probabilities.keys()].sort((a, b) => probabilities[b]! - probabilities[a]!).slice(0, shownBytes);
    const full = Math.max(0.1, probabilities[likeliest[0]!]!); // small ones are still told apart
    if (!likeliest.includes(byte)) likeliest[shownBytes - 1] = byte;
    this.bars.replaceChildren(
      ...likeliest.map((one) => {
        const percent = 100 * probabilities[one]!;
        const bar = make("span", "bar");
        bar.style.setProperty("--part", `${percent / full}%`);
        const row = make("li", one === byte ? "chosen" : "", make("span", "letter", nameOf(one)), bar, make("span", "percent", percent < 0.1 ? "<0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`));
        if (one === byte) row.title = "It chose this one";
        return row;
      }),
    );
  }

  private drawHeads({ attention }: Choice): void {
    const heads = attention[0]?.length ?? 0;
    byId("attention").hidden = heads === 0;
    this.heads.style.setProperty("--heads", String(heads));
    this.heads.replaceChildren(
      ...attention.flatMap((rows, layer) =>
        rows.map((weights, head) => {
          const isChosen = this.head?.[0] === layer && this.head[1] === head;
          const made = make("button", isChosen ? "head chosen" : "head", sparkline(weights));
          made.type = "button";
          made.title = `Layer ${layer + 1}, head ${head + 1}`;
          made.setAttribute("aria-pressed", String(isChosen));
          made.setAttribute("aria-label", made.title);
          made.onclick = () => {
            this.head = isChosen ? undefined : [layer, head];
            this.redraw();
          };
          return made;
        }),
      ),
    );
  }
}

function mean(rows: readonly Float32Array[]): Float32Array | undefined {
  return rows[0]?.map((_, i) => rows.reduce((sum, row) => sum + row[i]!, 0) / rows.length);
}

function sparkline(weights: Float32Array): SVGElement {
  const count = Math.max(1, weights.length);
  const most = weights.reduce((a, b) => Math.max(a, b), 1e-6);
  let path = "M0 20";
  weights.forEach((weight, i) => {
    const y = (20 - 18 * (weight / most)).toFixed(1);
    path += `L${((100 * i) / count).toFixed(1)} ${y}L${((100 * (i + 1)) / count).toFixed(1)} ${y}`;
  });
  return makeSvg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" }, makeSvg("path", { d: `${path}L100 20Z` }));
}
