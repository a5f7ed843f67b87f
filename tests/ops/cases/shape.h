#pragma once

#include "ops/cases/declare.h"

// Sample cases of the ops that move elements.
namespace jerboa::test {

CASES(reshape) {
  return {{{any({4, 3, 5})}, ShapeAttrs{{12, 5}}},  {{any({4, 3, 5})}, ShapeAttrs{{5, -1, 2}}},
          {{any({})}, ShapeAttrs{{1, 1}}},          {{any({1, 1})}, ShapeAttrs{{}}},
          {{any({0, 3})}, ShapeAttrs{{3, 0}}},      {{any({0, 3})}, ShapeAttrs{{-1, 3}}},
          {{any({T, 6})}, ShapeAttrs{{T, 2, 3}}},   {{any({B, T, 6})}, ShapeAttrs{{-1, 2}}},
          {{whole(-9, 9, {6})}, ShapeAttrs{{2, 3}}}};
}
CASES(transpose) {
  return {{{any({4, 3, 5})}, TransposeAttrs{{2, 0, 1}}},
          {{any({4, 3, 5})}, TransposeAttrs{{-1, 1, -3}}},
          {{any({7})}, TransposeAttrs{{0}}},
          {{any({})}, TransposeAttrs{}},
          {{any({3, 0})}, TransposeAttrs{{1, 0}}},
          {{any({B, T, 2, 3})}, TransposeAttrs{{0, 2, 1, 3}}},
          {{flags({2, 3})}, TransposeAttrs{{1, 0}}},
          {{any({17, 33})}, TransposeAttrs{{1, 0}}}};
}
CASES(swap_axes) {
  return {{{any({4, 3, 5})}, SwapAxesAttrs{}},
          {{any({4, 3, 5})}, SwapAxesAttrs{0, 2}},
          {{any({4, 3})}, SwapAxesAttrs{1, 1}},
          {{any({T, 3})}, SwapAxesAttrs{0, -1}},
          {{any({0, 3})}, SwapAxesAttrs{0, 1}}};
}
CASES(squeeze) {
  return {{{any({1, 3, 1, 5})}, AxesAttrs{{0, 2}}},
          {{any({1, 3, 1, 5})}, AxesAttrs{{-2}}},
          {{any({1})}, AxesAttrs{{0}}},
          {{any({1, 0})}, AxesAttrs{{0}}},
          {{any({T, 1})}, AxesAttrs{{1}}}};
}
CASES(unsqueeze) {
  return {{{any({3, 5})}, AxesAttrs{{0, 2}}}, {{any({3, 5})}, AxesAttrs{{-1}}}, {{any({3, 5})}, AxesAttrs{{-4, 3}}},
          {{any({})}, AxesAttrs{{0}}},        {{any({0})}, AxesAttrs{{0}}},     {{any({T})}, AxesAttrs{{1}}}};
}
CASES(broadcast_to) {
  return {{{any({3, 1})}, ShapeAttrs{{4, 3, 5}}}, {{any({})}, ShapeAttrs{{2, 3}}},
          {{any({5})}, ShapeAttrs{{5}}},          {{any({1})}, ShapeAttrs{{0}}},
          {{any({1, 3})}, ShapeAttrs{{T, 3}}},    {{whole(0, 9, {2})}, ShapeAttrs{{3, 2}}},
          {{any({1, 1})}, ShapeAttrs{{31, 9}}}};
}
CASES(sum_to_shape) {
  return {{{any({4, 3, 5})}, ShapeAttrs{{3, 1}}}, {{any({4, 3, 5})}, ShapeAttrs{}},
          {{any({4, 3})}, ShapeAttrs{{4, 3}}},    {{any({0, 3})}, ShapeAttrs{{1, 3}}},
          {{any({2, 1})}, ShapeAttrs{{1, 1}}},    {{any({B, T, 3})}, ShapeAttrs{{T, 3}}},
          {{any({T, 3})}, ShapeAttrs{{3}}}};
}
CASES(slice) {
  return {{{any({3, 8})}, SliceAttrs{-1, 2, 5, 1}},
          {{any({4, 3, 5})}, SliceAttrs{1, 1, 3, 1}},
          {{any({3, 8})}, SliceAttrs{1, 0, 8, 2}},
          {{any({3, 8})}, SliceAttrs{1, 1, 8, 3}},
          {{any({3, 8})}, SliceAttrs{1, 0, 7, 3}},
          {{any({3, 8})}, SliceAttrs{1, -3, 8, 1}},
          {{any({3, 8})}, SliceAttrs{1, 1, -2, 2}},
          {{any({3, 8})}, SliceAttrs{0, 1, 100, 1}},
          {{any({3, 8})}, SliceAttrs{0, 2, 1, 1}},
          {{any({0, 2})}, SliceAttrs{0, 0, 5, 1}},
          {{any({1})}, SliceAttrs{0, 0, 1, 4}},
          {{any({T, 2})}, SliceAttrs{0, T - Dim(1), T, 1}},
          {{any({T + Dim(2), 2})}, SliceAttrs{0, 1, T, 1}},
          {{any({T + T, 2})}, SliceAttrs{0, 0, T + T, 2}},
          {{any({T, 9})}, SliceAttrs{1, 1, 8, 4}},
          {{any({T, 2})}, SliceAttrs{0, 0, T, 2}},
          {{whole(0, 9, {6})}, SliceAttrs{0, 1, 6, 2}}};
}
CASES(concat) {
  return {{{any({3, 4}), any({3, 5})}, AxisAttrs{-1}},
          {{any({3, 4}), any({1, 4}), any({5, 4})}, AxisAttrs{0}},
          {{any({2, 3, 4}), any({2, 0, 4}), any({2, 1, 4})}, AxisAttrs{1}},
          {{any({7})}, AxisAttrs{0}},
          {{any({T, 2}), any({3, 2})}, AxisAttrs{0}},
          {{whole(0, 9, {2}), whole(0, 9, {1})}, AxisAttrs{0}}};
}
CASES(split) {
  return {{{any({3, 9})}, SplitAttrs{-1, {4, 5}}},    {{any({6, 2})}, SplitAttrs{0, {1, 2, 3}}},
          {{any({3, 4})}, SplitAttrs{1, {0, 4}}},     {{any({5})}, SplitAttrs{0, {5}}},
          {{any({T, 6})}, SplitAttrs{-1, {2, 2, 2}}}, {{any({T + Dim(3), 2})}, SplitAttrs{0, {T, 3}}}};
}
CASES(pad) {
  return {{{any({3, 5})}, PadAttrs{{0, 1}, {1, 2}, 0.25}},
          {{any({3, 5})}, PadAttrs{{0, 0}, {0, 0}, 1}},
          {{any({})}, PadAttrs{}},
          {{any({0})}, PadAttrs{{2}, {1}, -1}},
          {{any({T, 2})}, PadAttrs{{1, 0}, {0, 3}, 0}},
          {{any({T, 2})}, PadAttrs{{T, 0}, {0, 0}, 0}},
          {{whole(-9, 9, {2, 2})}, PadAttrs{{1, 1}, {1, 1}, 7}}};
}

}  // namespace jerboa::test
