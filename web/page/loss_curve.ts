import { make, makeSvg } from "./dom.js";

// The loss of all steps so far, with marks where the model generated a sample.

export interface CurveMark {
  readonly step: number;
  readonly label: string;
}

const margin = { left: 30, right: 10, top: 10, bottom: 24 };
const leastSteps = 20;
const points = 600; // more would not be visible

export class LossCurve {
  private losses: readonly number[] = [];
  private marks: readonly CurveMark[] = [];
  private chosen = -1;
  private frame = 0;
  private drawing = makeSvg("svg", {});
  private readonly buttons = new Map<number, HTMLButtonElement>();

  constructor(
    private readonly box: HTMLElement,
    private readonly onChoose: (step: number) => void,
  ) {
    box.replaceChildren(this.drawing);
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Highlights the mark of the step `chosen`. */
  show(losses: readonly number[], marks: readonly CurveMark[], chosen = -1): void {
    this.losses = losses;
    this.marks = marks;
    this.chosen = chosen;
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    this.frame = 0;
    const { clientWidth: width, clientHeight: height } = this.box;
    if (width === 0 || height === 0) return;
    const most = this.losses.length === 0 ? 6 : Math.ceil(this.losses.reduce((a, b) => (Number.isFinite(b) ? Math.max(a, b) : a), 1));
    const count = Math.max(leastSteps, this.losses.length);
    const bottom = height - margin.bottom;
    const x = (step: number) => margin.left + (step / count) * (width - margin.left - margin.right);
    const y = (loss: number) => bottom - (Math.min(loss, most) / most) * (bottom - margin.top);
    const drawing = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    for (let loss = 0; loss <= most; loss += Math.ceil(most / 6))
      drawing.append(
        makeSvg("line", { class: "grid-line", x1: margin.left, x2: width - margin.right, y1: y(loss), y2: y(loss) }),
        makeSvg("text", { class: "tick", x: margin.left - 8, y: y(loss) + 4, "text-anchor": "end" }, String(loss)),
      );
    for (const step of ticks(count)) drawing.append(makeSvg("text", { class: "tick", x: x(step), y: height - 6, "text-anchor": step > count * 0.95 ? "end" : "middle" }, step.toLocaleString("en")));
    drawing.append(makeSvg("path", { class: "loss-raw", d: line(this.losses, x, y) }), makeSvg("path", { class: "loss-mean", d: line(smoothed(this.losses), x, y) }));
    this.drawing.replaceWith(drawing);
    this.drawing = drawing;
    const lossAt = (step: number) => this.losses[Math.max(0, step - 1)] ?? NaN;
    this.placeMarks((step) => [x(step), y(Number.isFinite(lossAt(step)) ? lossAt(step) : most)]);
  }

  // Buttons, so that they can be reached with the keyboard. They are kept when the curve is redrawn, so that a click
  // that takes longer than a step still counts.
  private placeMarks(placeOf: (step: number) => readonly [number, number]): void {
    for (const [step, made] of this.buttons)
      if (!this.marks.some((mark) => mark.step === step)) {
        made.remove();
        this.buttons.delete(step);
      }
    for (const { step, label } of this.marks) {
      let made = this.buttons.get(step);
      if (made === undefined) {
        made = make("button", "mark");
        made.type = "button";
        made.setAttribute("aria-label", `The sample of step ${step}`);
        made.onclick = () => this.onChoose(step);
        this.buttons.set(step, made);
        this.box.append(made);
      }
      const [left, top] = placeOf(step);
      made.title = label;
      made.classList.toggle("chosen", step === this.chosen);
      made.style.left = `${left}px`;
      made.style.top = `${top}px`;
    }
  }
}

/** A few round numbers up to `count`. */
function ticks(count: number): number[] {
  const rough = count / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((factor) => factor * unit >= rough) ?? 10);
  return Array.from({ length: Math.floor(count / step) + 1 }, (_, i) => i * step);
}

function line(values: readonly number[], x: (step: number) => number, y: (loss: number) => number): string {
  const stride = Math.max(1, Math.ceil(values.length / points));
  const parts: string[] = [];
  for (let i = 0; i < values.length; i += stride) {
    const chunk = values.slice(i, i + stride).filter(Number.isFinite);
    if (chunk.length === 0) continue;
    const mean = chunk.reduce((sum, value) => sum + value, 0) / chunk.length;
    parts.push(`${parts.length === 0 ? "M" : "L"}${x(i + (chunk.length + 1) / 2).toFixed(1)} ${y(mean).toFixed(1)}`);
  }
  return parts.join("");
}

/** A moving average, with a wider window for more values; NaN where no loss is known. */
export function smoothed(values: readonly number[]): number[] {
  const sums = [0];
  const counts = [0];
  for (const value of values) {
    const isKnown = Number.isFinite(value);
    sums.push(sums.at(-1)! + (isKnown ? value : 0));
    counts.push(counts.at(-1)! + (isKnown ? 1 : 0));
  }
  const reach = Math.min(40, Math.ceil(values.length / 25));
  return values.map((_, i) => {
    const near = Math.min(reach, i, values.length - 1 - i);
    return (sums[i + near + 1]! - sums[i - near]!) / (counts[i + near + 1]! - counts[i - near]!);
  });
}
