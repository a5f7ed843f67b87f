import assert from "node:assert/strict";
import { test } from "node:test";

import { parseDim } from "../src/dim.js";
import { FileError, ShapeError } from "../src/index.js";

const bounds = new Map([
  ["T", 100],
  ["B_2", 8],
]);
const at = (text: string, values: Record<string, number>) => parseDim(text, bounds).evaluate(new Map(Object.entries(values)));

test("sizes are evaluated like Dim in the C++ library", () => {
  assert.equal(at("T", { T: 7 }), 7);
  assert.equal(at("2*T*B_2+T-3", { T: 7, B_2: 2 }), 32);
  assert.equal(at("-T+10", { T: 7 }), 3);
  assert.equal(at("((T+7)//8)", { T: 9 }), 2);
  assert.equal(at("4*(T//8)*B_2+(((T+63)//64)//3)", { T: 100, B_2: 3 }), 144);
  assert.equal(at("((-T+3)//4)", { T: 8 }), -2); // rounds down, not to zero
  assert.equal(parseDim(12, bounds).evaluate(new Map()), 12);
});

test("only a plain symbol is bound by an input", () => {
  assert.equal(parseDim("T", bounds).symbol, "T");
  assert.equal(parseDim("2*T", bounds).symbol, undefined);
  assert.equal(parseDim(5, bounds).symbol, undefined);
});

test("text that is not a size is refused", () => {
  for (const text of ["", "U", "T+", "T T", "(T", "(T//0)", "T//2", "1.5", "2T", "(".repeat(40) + "T" + ")".repeat(40), "9".repeat(20)])
    assert.throws(() => parseDim(text, bounds), FileError, text);
  for (const value of [1.5, null, [], {}, NaN]) assert.throws(() => parseDim(value, bounds), FileError);
});

test("symbols have values within their bounds", () => {
  assert.throws(() => at("T", {}), ShapeError);
  assert.throws(() => at("T", { T: 101 }), ShapeError);
  assert.throws(() => at("T", { T: 0 }), ShapeError);
});
