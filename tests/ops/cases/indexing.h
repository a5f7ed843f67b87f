#pragma once

#include <jerboa/ir/packed_cache.h>

#include "ops/cases/declare.h"

// Sample cases of gathers, scatters and the ops that keep state.
namespace jerboa::test {

CASES(embedding) {
  return {{{any({9, 4}), whole(0, 8, {2, 8})}},   {{any({9, 4}), given({}, {3})}},
          {{any({1, 3}), whole(0, 0, {4})}},      {{any({5, 1}), given({4}, {2, 2, 2, 0})}},
          {{any({5, 3}), whole(0, 4, {0})}},      {{any({5, 3}), whole(0, 4, {T})}},
          {{any({5, 0}), whole(0, 4, {2})}},      {{any({4, 2}), whole(0, 3, {3}, DType::u32)}},
          {{any({257, 33}), whole(0, 256, {40})}}};
}
CASES(embedding_quantised) {
  const auto i8 = whole(-127, 127, {9, 64}, DType::i8), i4 = whole(-8, 7, {9, 64}, DType::i4);
  const auto scales = within(0.01, 0.02, {9, 2}), mins = within(-0.1, 0.1, {9, 2});
  return {{{i8, scales, absent(), whole(0, 8, {2, 5})}},
          {{i4, scales, mins, whole(0, 8, {T})}},
          {{i8, scales, mins, given({}, {3})}},
          {{i4, scales, absent(), whole(0, 8, {0})}},
          {{i4, scales, mins, whole(0, 8, {4}, DType::u32)}}};
}
CASES(embedding_grad) {
  return {{{whole(0, 8, {2, 8}), any({2, 8, 4})}, EmbeddingGradAttrs{9}},
          {{given({}, {2}), any({3})}, EmbeddingGradAttrs{4}},
          {{given({4}, {1, 1, 1, 0}), any({4, 2})}, EmbeddingGradAttrs{3}},
          {{given({5}, {2, -1, 3, 0, 900}), any({5, 2})}, EmbeddingGradAttrs{3}},
          {{whole(0, 4, {0}), any({0, 3})}, EmbeddingGradAttrs{5}},
          {{whole(0, 4, {B, T}), any({B, T, 2})}, EmbeddingGradAttrs{5}}};
}
CASES(take_along_axis) {
  return {{{any({3, 8}), whole(0, 7, {3, 3})}, AxisAttrs{1}},        {{any({4, 3}), whole(0, 3, {6, 3})}, AxisAttrs{0}},
          {{any({2, 5, 3}), whole(0, 4, {2, 2, 3})}, AxisAttrs{-2}}, {{any({1}), given({1}, {0})}, AxisAttrs{0}},
          {{any({3, 4}), whole(0, 3, {3, 0})}, AxisAttrs{1}},        {{any({T, 4}), whole(0, 3, {T, 2})}, AxisAttrs{1}},
          {{whole(0, 9, {2, 3}), whole(0, 2, {2, 2})}, AxisAttrs{1}}};
}
inline std::vector<Case> scatters() {
  return {{{any({3, 8}), whole(0, 7, {3, 3}), any({3, 3})}, AxisAttrs{1}},
          {{any({4, 3}), whole(0, 3, {6, 3}), any({6, 3})}, AxisAttrs{0}},
          {{any({2, 5, 3}), whole(0, 4, {2, 2, 3}), any({2, 2, 3})}, AxisAttrs{-2}},
          {{any({4}), given({3}, {1, 1, 1}), any({3})}, AxisAttrs{0}},
          {{any({4}), given({6}, {-1, 1, 4, -900, 900, 0}), any({6})}, AxisAttrs{0}},
          {{any({3, 4}), whole(0, 3, {3, 0}), any({3, 0})}, AxisAttrs{1}},
          {{any({T, 4}), whole(0, 3, {T, 2}), any({T, 2})}, AxisAttrs{1}},
          {{whole(0, 9, {2, 3}), whole(0, 2, {2, 2}), whole(0, 9, {2, 2})}, AxisAttrs{1}}};
}
CASES(scatter) { return scatters(); }
CASES(scatter_add) { return scatters(); }
CASES(one_hot) {
  return {{{whole(-1, 4, {2, 6})}, OneHotAttrs{5, DType::f32}},
          {{given({}, {2})}, OneHotAttrs{3, DType::i32}},
          {{whole(0, 2, {0})}, OneHotAttrs{3, DType::f32}},
          {{whole(0, 2, {3})}, OneHotAttrs{0, DType::f32}},
          {{whole(0, 3, {T})}, OneHotAttrs{T, DType::f32}}};
}

CASES(adam_update) {
  const auto rate = given({}, {0.1}, DType::f32);
  const auto one = [&](const Shape& shape, double step, AdamAttrs attrs) {
    return Case{{any(shape), any(shape), any(shape), positive(shape), rate, given({}, {step})}, attrs};
  };
  return {one({3, 5}, 1, {}), one({7}, 100, {0.8, 0.95, 1e-6, 0.1}), one({}, 3, {}), one({0}, 2, {})};
}
CASES(sgd_update) {
  const auto rate = given({}, {0.1}, DType::f32);
  return {{{any({3, 5}), any({3, 5}), rate, absent()}, SgdAttrs{}},
          {{any({3, 5}), any({3, 5}), rate, absent()}, SgdAttrs{0, 0.1, false}},
          {{any({4}), any({4}), rate, any({4})}, SgdAttrs{0.9, 0, false}},
          {{any({4}), any({4}), rate, any({4})}, SgdAttrs{0.9, 0.1, true}},
          {{any({0}), any({0}), rate, absent()}, SgdAttrs{}}};
}
// Floats that an 8-bit cache holds exactly: whole numbers of steps of 1 / 32, the first of each group 127 of them.
inline Draw exactly_packable(Shape shape) {
  std::vector<double> values;
  std::uint32_t state = 7;
  for (std::int64_t i = 0; i < element_count(shape).value(); ++i) {
    state = state * 1664525 + 1013904223;
    const bool is_first = i % shape[3].value() % features_per_scale == 0;
    values.push_back((is_first ? 127 : static_cast<double>(state >> 24) - 128 + (state >> 24 == 0)) / 32);
  }
  return given(std::move(shape), std::move(values), DType::f32);
}
inline Draw empty_packed(Shape shape) {
  shape[3] = packed_words(shape[3].value());
  return whole(0, 0, std::move(shape), packed_cache);
}

CASES(cache_append) {
  return {
      {{any({2, 3, 6, 4}), any({2, 3, 2, 4}), given({2, 2}, {0, 1, 4, 5})}, CacheAppendAttrs{}},
      {{any({2, 3, 6, 4}), any({2, 3, 2, 4}), given({2, 2}, {-1, 3, 5, 6})}, CacheAppendAttrs{}},
      {{any({2, 1, 4, 3}), any({2, 1, 3, 3}), given({2, 3}, {2, 3, 4, 9, 10, -1})}, CacheAppendAttrs{true}},
      {{any({1, 1, 4, 2}), any({1, 1, 0, 2}), given({1, 0}, {})}, CacheAppendAttrs{}},
      {{any({B, 1, 16, 2}), any({B, 1, T, 2}), whole(0, 15, {B, T})}, CacheAppendAttrs{}},
      // Paged; positions whose block is missing are dropped.
      {{any({5, 3, 4, 2}), any({2, 3, 3, 2}), given({2, 3}, {0, 7, 12, 3, 8, 5}), given({2, 3}, {4, 1, -1, 0, -1, 2})},
       CacheAppendAttrs{}},
      {{any({3, 1, 2, 3}), any({2, 1, 3, 3}), given({2, 3}, {2, 3, 4, 9, 10, -1}), given({2, 1}, {2, 0})},
       CacheAppendAttrs{true}},
      {{any({9, 1, 4, 2}), any({B, 1, T, 2}), whole(0, 15, {B, T}), given({B, 4}, {8, 1, 6, 3, 4, 5, 2, 7})},
       CacheAppendAttrs{}},
      // In 8 bits, from floats; and rows that are in 8 bits already.
      {{empty_packed({2, 3, 6, 8}), exactly_packable({2, 3, 2, 8}), given({2, 2}, {0, 1, 4, 5})}, CacheAppendAttrs{}},
      {{empty_packed({1, 2, 4, 20}), exactly_packable({1, 2, 3, 20}), given({1, 3}, {9, -1, 2})},
       CacheAppendAttrs{true}},
      {{empty_packed({5, 2, 4, 80}), exactly_packable({2, 2, 3, 80}), given({2, 3}, {0, 7, 12, 3, 8, 5}),
        given({2, 3}, {4, 1, -1, 0, -1, 2})},
       CacheAppendAttrs{}},
      {{empty_packed({1, 1, 12, 256}), exactly_packable({1, 1, 10, 256}), whole(0, 11, {1, 10})}, CacheAppendAttrs{}},
      {{empty_packed({1, 1, 2, 32}), given({1, 1, 1, 32}, std::vector<double>(32), DType::f32), given({1, 1}, {1})},
       CacheAppendAttrs{}},
      {{whole(0, 99, {3, 1, 2, 3}, packed_cache), whole(0, 99, {1, 1, 2, 3}, packed_cache), given({1, 2}, {0, 3}),
        given({1, 2}, {2, 0})},
       CacheAppendAttrs{}}};
}

}  // namespace jerboa::test
