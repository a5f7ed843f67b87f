import { FileError, ShapeError } from "./errors.js";

// Sizes as program files write them: numbers, or expressions such as "2*T+((T+7)//8)" over symbols that inputs bind.

/** The largest value that each symbol may have. */
export type Bounds = ReadonlyMap<string, number>;
export type SymbolValues = ReadonlyMap<string, number>;

export interface Dim {
  /** The name if the size is just a symbol, which the shape of an input then binds. */
  readonly symbol: string | undefined;
  readonly text: string;
  evaluate(symbols: SymbolValues): number;
}

type Evaluate = (symbols: SymbolValues) => number;

function exact(value: number): number {
  if (!Number.isSafeInteger(value)) throw new ShapeError(`a size of ${value} is too large`);
  return value;
}

const deepest = 16;

// expression := ['-'] term (('+'|'-') term)* ; term := factor ('*' factor)*
// factor := number | name | '(' expression ['//' number] ')'
class DimParser {
  private position = 0;

  constructor(
    private readonly text: string,
    private readonly bounds: Bounds,
  ) {}

  parse(): Evaluate {
    const result = this.expression(0);
    if (this.position !== this.text.length) this.fail();
    return result;
  }

  private fail(): never {
    throw new FileError(`"${this.text}" is not a size over known symbols`);
  }

  private take(token: string): boolean {
    if (!this.text.startsWith(token, this.position)) return false;
    this.position += token.length;
    return true;
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.position;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.position += found.length;
    return found;
  }

  private expression(depth: number): Evaluate {
    if (depth > deepest) this.fail();
    const negative = this.take("-");
    const first = this.term(depth);
    let total: Evaluate = negative ? (symbols) => -first(symbols) : first;
    for (;;) {
      const plus = this.take("+");
      if (!plus && !this.take("-")) return total;
      const before = total;
      const next = this.term(depth);
      total = plus
        ? (symbols) => exact(before(symbols) + next(symbols))
        : (symbols) => exact(before(symbols) - next(symbols));
    }
  }

  private term(depth: number): Evaluate {
    let product = this.factor(depth);
    while (this.take("*")) {
      const before = product;
      const next = this.factor(depth);
      product = (symbols) => exact(before(symbols) * next(symbols));
    }
    return product;
  }

  private factor(depth: number): Evaluate {
    if (this.take("(")) {
      const numerator = this.expression(depth + 1);
      if (this.take(")")) return numerator;
      if (!this.take("//")) this.fail();
      const divisor = Number(this.match(/\d+/y));
      if (!(divisor >= 1) || !Number.isSafeInteger(divisor) || !this.take(")")) this.fail();
      return (symbols) => Math.floor(numerator(symbols) / divisor);
    }
    const digits = this.match(/\d+/y);
    if (digits !== undefined) {
      const value = Number(digits);
      if (!Number.isSafeInteger(value)) this.fail();
      return () => value;
    }
    const name = this.match(/[A-Za-z]\w*/y) ?? this.fail();
    const bound = this.bounds.get(name) ?? this.fail();
    return (symbols) => {
      const value = symbols.get(name);
      if (value === undefined) throw new ShapeError(`symbol ${name} has no value`);
      if (!(value >= 1 && value <= bound)) throw new ShapeError(`symbol ${name} = ${value} is outside 1 to ${bound}`);
      return value;
    };
  }
}

export function constantDim(value: number): Dim {
  return { symbol: undefined, text: String(value), evaluate: () => value };
}

/** Throws FileError for anything but a whole number or an expression over the symbols. */
export function parseDim(value: unknown, bounds: Bounds): Dim {
  if (typeof value === "number" && Number.isSafeInteger(value)) return constantDim(value);
  if (typeof value !== "string") throw new FileError(`${JSON.stringify(value)} is not a size`);
  const evaluate = new DimParser(value, bounds).parse();
  return { symbol: bounds.has(value) ? value : undefined, text: value, evaluate };
}

export function evaluateShape(shape: readonly Dim[], symbols: SymbolValues): number[] {
  return shape.map((dim) => dim.evaluate(symbols));
}

export const noSymbols: SymbolValues = new Map();
