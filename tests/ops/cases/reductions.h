#pragma once

#include "ops/cases/declare.h"

// Sample cases of generators, reductions, scans and sorts.
namespace jerboa::test {

inline std::vector<Case> reductions_of(Draw (*values)(Shape)) {
  return {{{values({4, 3, 8})}, ReduceAttrs{{-1}, false}},
          {{values({4, 3, 8})}, ReduceAttrs{{0}, true}},
          {{values({4, 3, 8})}, ReduceAttrs{{0, 2}, false}},
          {{values({4, 3, 8})}, ReduceAttrs{{-1, 1}, true}},
          {{values({3, 5})}, ReduceAttrs{}},
          {{values({3, 5})}, ReduceAttrs{{}, true}},
          {{values({})}, ReduceAttrs{}},
          {{values({1, 1})}, ReduceAttrs{{1}, false}},
          {{values({2, 0, 3})}, ReduceAttrs{{1}, false}},
          {{values({2, 0, 3})}, ReduceAttrs{{2}, true}},
          {{values({0})}, ReduceAttrs{}},
          {{values({B, T, 3})}, ReduceAttrs{{1}, true}},
          {{values({B, T, 3})}, ReduceAttrs{}},
          {{values({37, 29})}, ReduceAttrs{{0}, false}}};
}

inline std::vector<Case> with_integers(std::vector<Case> cases, const Attrs& attrs) {
  cases.push_back({{whole(-9, 9, {3, 4})}, attrs});
  cases.push_back({{whole(2147483000.0, 2147483647.0, {3, 4})}, attrs});
  cases.push_back({{whole(0, 9, {2, 0}, DType::u32)}, attrs});
  return cases;
}

CASES(arange) {
  return {{{}, ArangeAttrs{7, 0, 1, DType::i32}},
          {{}, ArangeAttrs{5, 2, -0.5, DType::f32}},
          {{}, ArangeAttrs{0, 0, 1, DType::i32}},
          {{}, ArangeAttrs{T, 3, 2, DType::u32}}};
}
CASES(random) {
  const auto key = given({2}, {42, 7}, DType::u32);
  return {{{key}, RandomAttrs{{3, 5}, Distribution::uniform, 0}},
          {{key}, RandomAttrs{{3, 5}, Distribution::normal, 3}},
          {{key}, RandomAttrs{{}, Distribution::normal, 0}},
          {{key}, RandomAttrs{{0}, Distribution::uniform, 0}},
          {{key}, RandomAttrs{{T, 2}, Distribution::uniform, 1}}};
}

CASES(sum) { return with_integers(reductions_of(any), ReduceAttrs{{1}, false}); }
CASES(mean) { return reductions_of(any); }
CASES(max) { return with_integers(reductions_of(distinct), ReduceAttrs{{1}, false}); }
CASES(min) { return with_integers(reductions_of(distinct), ReduceAttrs{{1}, false}); }
CASES(argmax) {
  return {{{distinct({4, 9})}, ArgmaxAttrs{}},
          {{distinct({4, 9})}, ArgmaxAttrs{0, true}},
          {{distinct({4, 3, 2})}, ArgmaxAttrs{-2, false}},
          {{whole(0, 3, {3, 7})}, ArgmaxAttrs{1, false}},
          {{distinct({2, 0})}, ArgmaxAttrs{1, false}},
          {{distinct({T, 3})}, ArgmaxAttrs{0, false}},
          {{distinct({1})}, ArgmaxAttrs{0, false}}};
}
CASES(all_finite) { return {{{any({3, 5})}}, {{any({})}}, {{any({0})}}, {{any({T})}}}; }
CASES(sum_squares) {
  std::vector<Draw> many;
  for (int i = 0; i < 21; ++i) many.push_back(any({i % 4 + 1, 3}));
  return {{{any({3, 5}), any({7}), any({})}}, {{any({0}), any({2, 2})}}, {{any({T, 3}), any({4})}}, {many}};
}
CASES(cumsum) {
  return {{{any({3, 8})}, CumsumAttrs{1, false}},
          {{any({3, 8})}, CumsumAttrs{0, true}},
          {{any({2, 3, 4})}, CumsumAttrs{-2, false}},
          {{any({1})}, CumsumAttrs{}},
          {{any({2, 0})}, CumsumAttrs{}},
          {{any({T, 2})}, CumsumAttrs{0, true}},
          {{whole(1000000000, 2000000000, {7})}, CumsumAttrs{0, false}}};
}
CASES(cummax) {
  return {{{distinct({3, 8})}, CumsumAttrs{1, false}},
          {{distinct({3, 8})}, CumsumAttrs{0, true}},
          {{distinct({2, 3, 4})}, CumsumAttrs{-2, false}},
          {{distinct({1})}, CumsumAttrs{}},
          {{distinct({2, 0})}, CumsumAttrs{}},
          {{distinct({T, 2})}, CumsumAttrs{0, true}},
          {{whole(0, 3, {2, 7})}, CumsumAttrs{1, true}},
          {{whole(0, 3, {9}, DType::u32)}, CumsumAttrs{0, false}}};
}
CASES(top_k) {
  return {{{distinct({3, 9})}, TopKAttrs{3, -1}},   {{distinct({6, 4})}, TopKAttrs{2, 0}},
          {{distinct({2, 5, 3})}, TopKAttrs{5, 1}}, {{distinct({1})}, TopKAttrs{1, 0}},
          {{distinct({0, 4})}, TopKAttrs{2, 1}},    {{whole(0, 2, {4, 6})}, TopKAttrs{4, -1}},
          {{distinct({T, 4})}, TopKAttrs{2, -1}}};
}
CASES(argsort) {
  return {{{distinct({3, 9})}, ArgsortAttrs{}},
          {{distinct({6, 4})}, ArgsortAttrs{0, true}},
          {{whole(0, 2, {3, 11})}, ArgsortAttrs{1, true}},
          {{whole(0, 2, {3, 11})}, ArgsortAttrs{-1, false}},
          {{distinct({0, 4})}, ArgsortAttrs{0, false}},
          {{distinct({T, 2})}, ArgsortAttrs{0, false}}};
}

}  // namespace jerboa::test
