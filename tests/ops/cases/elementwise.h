#pragma once

#include <limits>

#include "ops/cases/declare.h"

// Sample cases of the element-wise ops.
namespace jerboa::test {

/// One operand in all kinds of shapes, with values drawn by `values`.
inline std::vector<Case> shapes_of(Draw (*values)(Shape), const Attrs& attrs = NoAttrs{}) {
  std::vector<Case> cases;
  for (const Shape& shape :
       {Shape{3, 5}, Shape{}, Shape{1}, Shape{7}, Shape{0}, Shape{2, 1, 7}, Shape{4, 0}, Shape{T, 3}, Shape{33, 17}})
    cases.push_back({{values(shape)}, attrs});
  return cases;
}

/// Two operands that broadcast in every way.
inline std::vector<Case> pairs_of(Draw (*first)(Shape), Draw (*second)(Shape), const Attrs& attrs = NoAttrs{}) {
  const std::vector<std::pair<Shape, Shape>> shapes{
      {{4, 3, 5}, {5}},    {{3, 4}, {3, 4}}, {{}, {}},         {{4, 1}, {1, 8}}, {{3, 4}, {}},        {{}, {2, 3}},
      {{2, 1, 3}, {4, 1}}, {{0}, {1}},       {{2, 0}, {2, 0}}, {{1}, {1, 1}},    {{B, T, 4}, {T, 1}}, {{31, 33}, {33}}};
  std::vector<Case> cases;
  for (const auto& [a, b] : shapes) cases.push_back({{first(a), second(b)}, attrs});
  return cases;
}

inline std::vector<Case> joined(std::vector<Case> cases, const std::vector<Case>& more) {
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

inline Draw some_integers(Shape shape) { return whole(-9, 9, std::move(shape)); }
inline Draw some_shifts(Shape shape) { return whole(0, 40, std::move(shape)); }

// Integers at the ends of their ranges and around zero, each with each.
inline std::vector<Case> edge_pairs() {
  const double low = std::numeric_limits<std::int32_t>::lowest(), high = std::numeric_limits<std::int32_t>::max();
  const double top = std::numeric_limits<std::uint32_t>::max();
  const std::vector<double> signed_values{low, -7, -1, 0, 1, 2, 31, high},
      unsigned_values{0, 1, 5, 31, 32, 40, top - 1, top};
  return {{{given({8, 1}, signed_values), given({8}, signed_values)}},
          {{given({8, 1}, unsigned_values, DType::u32), given({8}, unsigned_values, DType::u32)}}};
}

inline std::vector<Case> integer_pairs() { return joined(pairs_of(some_integers, some_integers), edge_pairs()); }
inline std::vector<Case> numeric_pairs(Draw (*first)(Shape), Draw (*second)(Shape)) {
  return joined(pairs_of(first, second), edge_pairs());
}
inline std::vector<Case> compare_pairs() {
  return joined(integer_pairs(), {{{any({3, 4}), any({4})}}, {{flags({6}), flags({6})}}});
}

CASES(neg) { return joined(shapes_of(any), {{{whole(-9, 9, {5})}}}); }
CASES(abs) { return joined(shapes_of(distinct), {{{given({3}, {-2147483648.0, -3, 3})}}}); }
CASES(sqrt) { return shapes_of(positive); }
CASES(rsqrt) { return shapes_of(positive); }
CASES(log) { return shapes_of(positive); }
CASES(exp) { return shapes_of(any); }
CASES(expm1) { return joined(shapes_of(any), {{{within(-1e-4, 1e-4, {5})}}}); }
CASES(sin) { return shapes_of(any); }
CASES(cos) { return shapes_of(any); }
CASES(tanh) { return shapes_of(any); }
CASES(sigmoid) { return joined(shapes_of(any), {{{within(-40, 40, {9})}}}); }
CASES(erf) { return shapes_of(any); }
CASES(relu) { return shapes_of(distinct); }
CASES(silu) { return shapes_of(any); }
CASES(gelu) { return joined(shapes_of(any, GeluAttrs{}), shapes_of(any, GeluAttrs{GeluForm::tanh})); }
CASES(softplus) { return joined(shapes_of(any), {{{within(-50, 50, {9})}}}); }
CASES(floor) { return shapes_of(distinct); }
CASES(round) { return shapes_of(distinct); }
CASES(stop_gradient) { return joined(shapes_of(any), {{{whole(-9, 9, {5})}}}); }
CASES(clamp) {
  return joined(shapes_of(distinct, ClampAttrs{-0.503, 0.707}), {{{whole(-9, 9, {12})}, ClampAttrs{-3, 4}}});
}
CASES(cast) {
  return joined(shapes_of(any, CastAttrs{DType::f32}),
                {{{within(-100, 100, {9})}, CastAttrs{DType::i32}},
                 {{within(0, 100, {9})}, CastAttrs{DType::u32}},
                 {{given({4}, {0, -1, 7, 9})}, CastAttrs{DType::boolean}},
                 {{given({4}, {0, -1, 7, -2147483648.0})}, CastAttrs{DType::u32}},
                 {{given({3}, {0, 7, 4294967295.0}, DType::u32)}, CastAttrs{DType::i32}},
                 {{flags({5})}, CastAttrs{DType::f32}},
                 {{whole(-9, 9, {2, 3})}, CastAttrs{DType::f32}}});
}
CASES(logical_not) { return {{{flags({3, 5})}}, {{flags({})}}, {{flags({0})}}}; }
CASES(bit_not) { return {{{whole(-9, 9, {3, 5})}}, {{whole(0, 9, {4}, DType::u32)}}, {{whole(0, 1, {0})}}}; }

CASES(add) { return numeric_pairs(any, any); }
CASES(sub) { return numeric_pairs(any, any); }
CASES(mul) { return numeric_pairs(any, any); }
CASES(div) { return numeric_pairs(any, positive); }
CASES(pow) {
  auto cases = pairs_of(positive, any, PowAttrs{});
  for (const double exponent : {3.0, 2.0, 1.0, 0.0, -1.0})
    cases.push_back({{distinct({3, 5}), absent()}, PowAttrs{exponent}});
  cases.push_back({{positive({T, 2}), absent()}, PowAttrs{0.5}});
  cases.push_back({{positive({0}), absent()}, PowAttrs{-1.5}});
  return cases;
}
CASES(maximum) { return numeric_pairs(distinct, distinct); }
CASES(minimum) { return numeric_pairs(distinct, distinct); }
CASES(mod) { return numeric_pairs(distinct, positive); }
CASES(equal) { return compare_pairs(); }
CASES(not_equal) { return compare_pairs(); }
CASES(less) { return compare_pairs(); }
CASES(less_equal) { return compare_pairs(); }
CASES(greater) { return compare_pairs(); }
CASES(greater_equal) { return compare_pairs(); }
CASES(logical_and) { return pairs_of(flags, flags); }
CASES(logical_or) { return pairs_of(flags, flags); }
CASES(bit_and) { return integer_pairs(); }
CASES(bit_or) { return integer_pairs(); }
CASES(bit_xor) { return integer_pairs(); }
CASES(shift_left) { return joined(pairs_of(some_integers, some_shifts), edge_pairs()); }
CASES(shift_right) { return joined(pairs_of(some_integers, some_shifts), edge_pairs()); }
CASES(where) {
  return {{{flags({3, 5}), any({3, 5}), any({3, 5})}},
          {{flags({5}), any({3, 1}), any({})}},
          {{flags({4, 1, 1}), any({3, 5}), any({5})}},
          {{flags({}), any({2}), any({2})}},
          {{flags({0}), any({0}), any({1})}},
          {{flags({T, 1}), any({T, 3}), any({3})}},
          {{flags({4}), whole(-9, 9, {4}), whole(-9, 9, {})}}};
}

}  // namespace jerboa::test
