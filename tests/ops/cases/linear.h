#pragma once

#include "ops/cases/declare.h"

// Sample cases of matrix products, convolutions and pooling.
namespace jerboa::test {

CASES(matmul) {
  return {{{any({5, 8}), any({8, 3})}, MatmulAttrs{}},
          {{any({5, 8}), any({3, 8})}, MatmulAttrs{false, true}},
          {{any({8, 5}), any({8, 3})}, MatmulAttrs{true, false}},
          {{any({8, 5}), any({3, 8})}, MatmulAttrs{true, true}},
          {{any({4, 5, 8}), any({8, 3})}, MatmulAttrs{}},
          {{any({4, 5, 8}), any({3, 8})}, MatmulAttrs{false, true}},
          {{any({4, 8, 5}), any({8, 3})}, MatmulAttrs{true, false}},
          {{any({5, 8}), any({2, 8, 3})}, MatmulAttrs{}},
          {{any({8, 5}), any({2, 3, 8})}, MatmulAttrs{true, true}},
          {{any({4, 1, 5, 2}), any({3, 2, 4})}, MatmulAttrs{}},
          {{any({4, 3, 2, 5}), any({4, 3, 2, 4})}, MatmulAttrs{true, false}},
          {{any({1, 1}), any({1, 1})}, MatmulAttrs{}},
          {{any({1, 7}), any({7, 9})}, MatmulAttrs{}},
          {{any({3, 0}), any({0, 4})}, MatmulAttrs{}},
          {{any({0, 3}), any({3, 4})}, MatmulAttrs{}},
          {{any({2, 0, 3}), any({3, 4})}, MatmulAttrs{}},
          {{any({B, T, 4}), any({3, 4})}, MatmulAttrs{false, true}},
          {{any({B, T, 4}), any({B, T, 4})}, MatmulAttrs{false, true}},
          {{any({33, 65}), any({65, 17})}, MatmulAttrs{}}};
}
inline Draw offsets(std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return given({count}, std::move(values));
}
CASES(matmul_quantised) {
  const auto i8 = [](std::int64_t out, std::int64_t in) { return whole(-127, 127, {out, in}, DType::i8); };
  const auto i4 = [](std::int64_t out, std::int64_t in) { return whole(-8, 7, {out, in}, DType::i4); };
  const auto scales = [](std::int64_t out, std::int64_t in) { return within(0.01, 0.02, {out, in / 32}); };
  const auto mins = [](std::int64_t out, std::int64_t in) { return within(-0.1, 0.1, {out, in / 32}); };
  return {{{any({5, 64}), i8(3, 64), scales(3, 64)}},
          {{any({5, 64}), i4(3, 64), scales(3, 64)}},
          {{any({2, 3, 32}), i8(7, 32), scales(7, 32)}},
          {{any({1, 96}), i4(40, 96), scales(40, 96)}},
          {{any({T, 32}), i8(4, 32), scales(4, 32)}},
          {{any({0, 32}), i4(4, 32), scales(4, 32)}},
          {{any({5, 64}), i4(7, 64), scales(7, 64), mins(7, 64)}},
          {{any({1, 96}), i8(33, 96), scales(33, 96), mins(33, 96)}},
          {{any({2, T, 32}), i4(12, 32), scales(12, 32), mins(12, 32)}}};
}
CASES(dequantise) {
  return {{{whole(-127, 127, {3, 64}, DType::i8), within(0.01, 0.02, {3, 2})}},
          {{whole(-8, 7, {5, 32}, DType::i4), within(0.01, 0.02, {5, 1})}},
          {{whole(-8, 7, {5, 64}, DType::i4), within(0.01, 0.02, {5, 2}), within(-0.1, 0.1, {5, 2})}},
          {{whole(-127, 127, {2, 3, 64}, DType::i8), within(0.01, 0.02, {2, 3, 2}), within(-0.1, 0.1, {2, 3, 2})}}};
}
CASES(matmul_grouped_quantised) {
  const auto i8 = whole(-127, 127, {3, 5, 64}, DType::i8), i4 = whole(-8, 7, {3, 5, 64}, DType::i4);
  const auto scales = within(0.01, 0.02, {3, 5, 2}), mins = within(-0.1, 0.1, {3, 5, 2});
  return {{{any({6, 64}), i8, scales, absent(), offsets({0, 2, 3, 6})}},
          {{any({6, 64}), i4, scales, mins, offsets({0, 2, 2, 6})}},
          {{any({5, 64}), i4, scales, absent(), offsets({1, 3, 3, 4})}},
          {{any({0, 64}), i8, scales, mins, offsets({0, 0, 0, 0})}},
          {{any({T, 64}), i4, scales, mins, offsets({0, 1, 2, 5})}}};
}
CASES(matmul_grouped) {
  return {{{any({6, 4}), any({3, 4, 5}), offsets({0, 2, 3, 6})}, GroupedAttrs{}},
          {{any({6, 4}), any({3, 5, 4}), offsets({0, 2, 2, 6})}, GroupedAttrs{true}},
          {{any({5, 3}), any({2, 3, 2}), offsets({1, 3, 4})}, GroupedAttrs{}},
          {{any({0, 3}), any({2, 3, 2}), offsets({0, 0, 0})}, GroupedAttrs{}},
          {{any({1, 1}), any({1, 1, 1}), offsets({0, 1})}, GroupedAttrs{}},
          {{any({T, 3}), any({2, 3, 2}), offsets({0, 2, 5})}, GroupedAttrs{}}};
}
CASES(matmul_grouped_weight_grad) {
  return {{{any({6, 4}), any({6, 5}), offsets({0, 2, 3, 6})}},
          {{any({6, 4}), any({6, 5}), offsets({0, 0, 4, 6})}},
          {{any({0, 4}), any({0, 5}), offsets({0, 0})}},
          {{any({T, 2}), any({T, 3}), offsets({0, 2, 5})}}};
}
CASES(conv1d) {
  return {{{any({2, 3, 11}), any({5, 3, 3}), any({5})}, Conv1dAttrs{2, 1, 1, 1}},
          {{any({2, 4, 9}), any({6, 2, 2}), absent()}, Conv1dAttrs{1, 0, 2, 2}},
          {{any({1, 1, 1}), any({1, 1, 1}), any({1})}, Conv1dAttrs{}},
          {{any({0, 2, 5}), any({3, 2, 2}), absent()}, Conv1dAttrs{}},
          {{any({B, 2, T}), any({3, 2, 3}), any({3})}, Conv1dAttrs{1, 1, 1, 1}}};
}
CASES(conv2d) {
  return {{{any({2, 3, 9, 8}), any({4, 3, 3, 3}), any({4})}, Conv2dAttrs{{2, 2}, {1, 1}, {1, 1}, 1}},
          {{any({2, 4, 6, 5}), any({6, 2, 3, 2}), any({6})}, Conv2dAttrs{{1, 1}, {0, 0}, {1, 1}, 2}},
          {{any({1, 2, 7, 6}), any({2, 1, 2, 3}), absent()}, Conv2dAttrs{{1, 2}, {2, 1}, {3, 2}, 2}},
          {{any({1, 1, 1, 1}), any({1, 1, 1, 1}), absent()}, Conv2dAttrs{}},
          {{any({0, 2, 3, 3}), any({1, 2, 2, 2}), any({1})}, Conv2dAttrs{}},
          {{any({1, 2, 5, 5}), any({3, 2, 2, 2}), absent()}, Conv2dAttrs{{3, 3}, {0, 0}, {1, 1}, 1}},
          {{any({B, 2, 4, T}), any({3, 2, 3, 3}), any({3})}, Conv2dAttrs{{1, 1}, {1, 1}, {1, 1}, 1}}};
}
CASES(conv2d_input_grad) {
  return {{{any({2, 4, 5, 4}), any({4, 3, 3, 3})}, Conv2dGradAttrs{{2, 2}, {1, 1}, {1, 1}, 1, {9, 8}}},
          {{any({2, 6, 4, 4}), any({6, 2, 3, 2})}, Conv2dGradAttrs{{1, 1}, {0, 0}, {1, 1}, 2, {6, 5}}},
          {{any({1, 3, 2, 2}), any({3, 2, 2, 2})}, Conv2dGradAttrs{{3, 3}, {0, 0}, {1, 1}, 1, {5, 5}}},
          {{any({1, 2, 8, 2}), any({2, 1, 2, 3})}, Conv2dGradAttrs{{1, 2}, {2, 1}, {3, 2}, 2, {7, 6}}}};
}
CASES(conv2d_weight_grad) {
  return {{{any({2, 3, 9, 8}), any({2, 4, 5, 4})}, Conv2dGradAttrs{{2, 2}, {1, 1}, {1, 1}, 1, {3, 3}}},
          {{any({2, 4, 6, 5}), any({2, 6, 4, 4})}, Conv2dGradAttrs{{1, 1}, {0, 0}, {1, 1}, 2, {3, 2}}},
          {{any({1, 2, 5, 5}), any({1, 3, 2, 2})}, Conv2dGradAttrs{{3, 3}, {0, 0}, {1, 1}, 1, {2, 2}}},
          {{any({1, 2, 7, 6}), any({1, 2, 8, 2})}, Conv2dGradAttrs{{1, 2}, {2, 1}, {3, 2}, 2, {2, 3}}}};
}
inline std::vector<Case> pools(Draw (*values)(Shape)) {
  return {{{values({2, 3, 6, 8})}, PoolAttrs{}},
          {{values({1, 2, 7, 5})}, PoolAttrs{{3, 2}, {2, 1}, {1, 1}}},
          {{values({1, 1, 5, 5})}, PoolAttrs{{3, 3}, {1, 1}, {0, 0}}},
          {{values({1, 1, 5, 7})}, PoolAttrs{{2, 2}, {2, 3}, {0, 0}}},
          {{values({1, 1, 1, 1})}, PoolAttrs{{1, 1}, {1, 1}, {0, 0}}},
          {{values({0, 2, 4, 4})}, PoolAttrs{}},
          {{values({B, 1, 4, T + Dim(1)})}, PoolAttrs{{2, 2}, {1, 1}, {0, 0}}}};
}
CASES(max_pool2d) { return pools(distinct); }
CASES(max_pool2d_grad) {
  return {{{distinct({2, 3, 6, 8}), any({2, 3, 3, 4})}, PoolGradAttrs{{2, 2}, {2, 2}, {0, 0}, {6, 8}}},
          {{distinct({1, 2, 7, 5}), any({1, 2, 4, 6})}, PoolGradAttrs{{3, 2}, {2, 1}, {1, 1}, {7, 5}}}};
}
CASES(avg_pool2d) { return pools(any); }
CASES(avg_pool2d_grad) {
  return {{{any({2, 3, 3, 4})}, PoolGradAttrs{{2, 2}, {2, 2}, {0, 0}, {6, 8}}},
          {{any({1, 2, 4, 6})}, PoolGradAttrs{{3, 2}, {2, 1}, {1, 1}, {7, 5}}},
          {{any({1, 1, 2, 2})}, PoolGradAttrs{{2, 2}, {2, 3}, {0, 0}, {5, 7}}}};
}

}  // namespace jerboa::test
