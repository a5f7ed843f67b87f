#include <fmt/format.h>
#include <functional>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "support/expect_error.h"

// The errors that users read when operands do not match: the op, the sizes, the problem, and the line.
namespace jerboa::test {
namespace {

Tensor f(Shape shape) {
  static int count = 0;
  return tensor_input(fmt::format("input{}", ++count), std::move(shape));
}
Tensor typed(DType dtype, Shape shape) { return cast(f(std::move(shape)), dtype); }
Tensor i(Shape shape) { return typed(DType::i32, std::move(shape)); }
Tensor b(Shape shape) { return typed(DType::boolean, std::move(shape)); }

/// Expects `text` followed by the place in this file.
void expect_shape_error(const std::function<void()>& body, const std::string& text) {
  const std::string message = message_of<ShapeError>([&] { trace(body); });
  const std::string place = " (shape_error_test.cpp:";
  EXPECT_EQ(message.substr(0, message.rfind(place)), text);
  EXPECT_NE(message.rfind(place), std::string::npos) << message;
}

TEST(ShapeErrors, NameTheUsersLine) {
  int line = 0;
  const std::string message = message_of<ShapeError>([&] {
    trace([&] {
      const Tensor x = f({8, 128, 256}), w = f({128, 512});
      line = __LINE__ + 1;
      matmul(x, w);
    });
  });
  EXPECT_EQ(message, fmt::format("matmul: [8, 128, 256] x [128, 512]: inner sizes 256 and 128 differ "
                                 "(shape_error_test.cpp:{})",
                                 line));
}

TEST(ShapeErrors, NameTheLineOfOperatorsAndNumbers) {
  int line = 0;
  const auto message = message_of<ShapeError>([&] {
    trace([&] {
      const Tensor x = f({2}), y = f({3});
      line = __LINE__ + 1;
      const Tensor z = 2 * x + y;
      output("z", z);
    });
  });
  EXPECT_EQ(message, fmt::format("add: [2] and [3] do not broadcast (shape_error_test.cpp:{})", line));
}

TEST(ShapeErrors, NameSymbols) {
  const Dim T = Dim::symbol("T", 16);
  expect_shape_error([&] { f({T, 2}) + f({T + Dim(1), 2}); }, "add: [T, 2] and [T+1, 2] do not broadcast");
  expect_shape_error([&] { top_k(f({T}), 3); }, "top_k: k = 3 does not fit a size of T");
  expect_shape_error([&] { slice(f({T}), 0, 0, 3); }, "slice: 0 to 3 step 1 is not a range of axis 0 of [T]");
}

TEST(ShapeErrors, OfElementwiseOps) {
  expect_shape_error([] { f({2}) + i({2}); }, "add: types f32 and i32 differ; cast one of them");
  expect_shape_error([] { b({2}) + b({2}); }, "add: boolean tensors have no arithmetic; cast them");
  expect_shape_error([] { exp(i({2})); }, "exp: x must be of a float type, not i32; cast it");
  expect_shape_error([] { neg(b({2})); }, "neg: boolean tensors have no arithmetic; cast them");
  expect_shape_error([] { logical_not(f({2})); }, "logical_not: x must be boolean, not f32; compare it");
  expect_shape_error([] { logical_and(b({2}), f({2})); }, "logical_and: b must be boolean, not f32; compare it");
  expect_shape_error([] { bit_not(f({2})); }, "bit_not: x must be of an integer type, not f32; cast it");
  expect_shape_error([] { bit_and(f({2}), f({2})); }, "bit_and: a must be of an integer type, not f32; cast it");
  expect_shape_error([] { bit_and(i({2}), typed(DType::u32, {2})); },
                     "bit_and: types i32 and u32 differ; cast one of them");
  expect_shape_error([] { less(f({2}), f({3})); }, "less: [2] and [3] do not broadcast");
  expect_shape_error([] { pow(i({2}), 2); }, "pow: a must be of a float type, not i32; cast it");
  expect_shape_error([] { where(f({2}), f({2}), f({2})); }, "where: condition must be boolean, not f32; compare it");
  expect_shape_error([] { where(b({2}), f({3}), f({3})); }, "where: condition [2] and values [3] do not broadcast");
  expect_shape_error([] { where(b({2}), f({2}), i({2})); }, "where: types f32 and i32 differ; cast one of them");
  expect_shape_error([] { cast(f({2}), DType::i8); }, "cast: i8 is a storage type");
  expect_shape_error([] { arange(-1); }, "arange: a length of -1 may be negative");
  expect_shape_error([] { arange(3, DType::boolean); }, "arange: the type must be numeric, not boolean");
  expect_shape_error([] { random(f({2}), {3}); }, "random: the key must be u32[2], not f32[2]");
  expect_shape_error([] { random(typed(DType::u32, {2}), {-3}); }, "random: [-3] has a negative size");
}

TEST(ShapeErrors, OfReductions) {
  expect_shape_error([] { sum(f({2, 3}), {2}); }, "sum: axes 2 are out of range or repeated for [2, 3]");
  expect_shape_error([] { sum(f({2, 3}), {1, -1}); }, "sum: axes 1, -1 are out of range or repeated for [2, 3]");
  expect_shape_error([] { sum(b({2})); }, "sum: boolean tensors have no arithmetic; cast them");
  expect_shape_error([] { mean(i({2})); }, "mean: x must be of a float type, not i32; cast it");
  expect_shape_error([] { argmax(f({2}), 1); }, "argmax: axis 1 is out of range for [2]");
  expect_shape_error([] { all_finite(i({2})); }, "all_finite: x must be of a float type, not i32; cast it");
  expect_shape_error([] { cumsum(f({2}), -2); }, "cumsum: axis -2 is out of range for [2]");
  expect_shape_error([] { top_k(f({4}), 5); }, "top_k: k = 5 does not fit a size of 4");
  expect_shape_error([] { top_k(f({4}), 0); }, "top_k: k = 0 does not fit a size of 4");
  expect_shape_error([] { argsort(f({}), 0); }, "argsort: axis 0 is out of range for []");
}

TEST(ShapeErrors, OfShapeOps) {
  expect_shape_error([] { reshape(f({2, 3}), {4, 2}); }, "reshape: [2, 3] has 6 elements, [4, 2] has 8");
  expect_shape_error([] { reshape(f({2, 3}), {-1, -1}); }, "reshape: only one size of [-1, -1] may be -1");
  expect_shape_error([] { reshape(f({2, 3}), {4, -1}); }, "reshape: [2, 3] does not divide into [4, -1]");
  expect_shape_error([] { reshape(f({2, 3}), {-2, -3}); }, "reshape: [-2, -3] has a negative size");
  expect_shape_error([] { transpose(f({2, 3}), {0}); }, "transpose: [0] is not a permutation of the axes of [2, 3]");
  expect_shape_error(
      [] {
        transpose(f({2, 3}), {0, 0});
      },
      "transpose: [0, 0] is not a permutation of the axes of [2, 3]");
  expect_shape_error([] { swap_axes(f({2, 3}), 0, 2); }, "swap_axes: axis 2 is out of range for [2, 3]");
  expect_shape_error([] { squeeze(f({2, 1}), {0}); }, "squeeze: axis 0 of [2, 1] is not of size 1");
  expect_shape_error([] { squeeze(f({2, 1}), {}); }, "squeeze: axes [] are out of range or repeated for [2, 1]");
  expect_shape_error([] { unsqueeze(f({2}), {3}); }, "unsqueeze: axes [3] are out of range or repeated for [2]");
  expect_shape_error([] { broadcast_to(f({2}), {3}); }, "broadcast_to: [2] does not broadcast to [3]");
  expect_shape_error([] { sum_to_shape(f({2}), {3}); }, "sum_to_shape: [2] is not a broadcast of [3]");
  expect_shape_error([] { slice(f({4}), 0, 0, 2, 0); }, "slice: 0 to 2 step 0 is not a range of axis 0 of [4]");
  expect_shape_error([] { slice(f({4}), 1, 0, 2); }, "slice: axis 1 is out of range for [4]");
  expect_shape_error(
      [] {
        concat({f({2, 3}), f({3, 2})}, 0);
      },
      "concat: [2, 3] and [3, 2] must agree on every axis but 0");
  expect_shape_error([] { concat({f({2}), i({2})}); }, "concat: types f32 and i32 differ; cast one of them");
  expect_shape_error([] { split(f({5}), {2, 2}); }, "split: parts [2, 2] do not add up to axis 0 of [5]");
  expect_shape_error([] { split(f({5}), {-1, 6}); }, "split: [-1] has a negative size");
  expect_shape_error([] { split<3>(f({4})); }, "split: axis -1 of [4] does not divide into 3 equal parts");
  expect_shape_error(
      [] {
        pad(f({2, 3}), {1}, {1});
      },
      "pad: [2, 3] needs one number before and after for each of its axes");
  expect_shape_error([] { pad(f({2}), {-1}, {0}); }, "pad: padding must not be negative; slice instead");
}

TEST(ShapeErrors, OfIndexing) {
  expect_shape_error([] { embedding(f({4}), i({2})); }, "embedding: table must have 2 axes, not [4]");
  expect_shape_error(
      [] {
        embedding(f({4, 2}), f({2}));
      },
      "embedding: ids must be of an integer type, not f32; cast it");
  expect_shape_error(
      [] {
        embedding_grad(i({3}), f({2, 4}), 5);
      },
      "embedding_grad: ids [3] and dy [2, 4] do not match");
  expect_shape_error([] { embedding_grad(i({}), f({}), 5); }, "embedding_grad: dy must have at least one axis");
  expect_shape_error([] { embedding_grad(i({3}), f({3, 4}), -5); }, "embedding_grad: [-5, 4] has a negative size");
  expect_shape_error(
      [] {
        gather(f({2, 3}), i({3, 3}), 1);
      },
      "take_along_axis: [2, 3] and [3, 3] must agree on every axis but 1");
  expect_shape_error(
      [] {
        scatter(f({2, 3}), i({2, 1}), f({2, 2}), 1);
      },
      "scatter: indices [2, 1] and updates [2, 2] differ in shape");
  expect_shape_error([] { scatter_add(f({2}), i({2}), i({2}), 0); },
                     "scatter_add: types f32 and i32 differ; cast one of them");
  expect_shape_error([] { one_hot(i({2}), 3, DType::boolean); }, "one_hot: the type must be numeric, not boolean");
  expect_shape_error([] { one_hot(i({2}), -3); }, "one_hot: [2, -3] has a negative size");
}

TEST(ShapeErrors, OfLinearAlgebra) {
  expect_shape_error([] { matmul(f({3}), f({3, 2})); }, "matmul: a must have at least 2 axes, not [3]");
  expect_shape_error([] { matmul(i({2, 2}), i({2, 2})); }, "matmul: a must be of a float type, not i32; cast it");
  expect_shape_error(
      [] {
        matmul(f({2, 4, 3}), f({3, 3, 5}));
      },
      "matmul: [2, 4, 3] x [3, 3, 5]: the leading sizes do not broadcast");
  expect_shape_error(
      [] {
        matmul_grouped(f({6, 4}), f({3, 5, 2}), i({4}));
      },
      "matmul_grouped: [6, 4] x [3, 5, 2]: inner sizes 4 and 5 differ");
  expect_shape_error(
      [] {
        matmul_grouped(f({6, 4}), f({3, 4, 2}), i({3}));
      },
      "matmul_grouped: 3 groups need 4 offsets, not 3");
  const auto i8 = [](Shape shape) { return tensor_input("weight", std::move(shape), DType::i8); };
  expect_shape_error(
      [&] {
        matmul_grouped_quantised(f({6, 96}), i8({3, 5, 64}), f({3, 5, 2}), {}, i({4}));
      },
      "matmul_grouped_quantised: [6, 96] x [3, 5, 64]: inner sizes 96 and 64 differ");
  expect_shape_error(
      [&] {
        matmul_grouped_quantised(f({6, 64}), i8({3, 5, 64}), f({3, 5, 2}), {}, i({3}));
      },
      "matmul_grouped_quantised: 3 groups need 4 offsets, not 3");
  expect_shape_error(
      [&] {
        matmul_grouped_quantised(f({6, 64}), i8({3, 5, 64}), f({3, 4, 2}), {}, i({4}));
      },
      "matmul_grouped_quantised: scales of [3, 4, 2] do not match a weight of [3, 5, 64]: every 32 values of a row "
      "share "
      "one");
  expect_shape_error(
      [&] {
        matmul_quantised(f({6, 64}), i8({3, 5, 64}), f({3, 5, 2}));
      },
      "matmul_quantised: weight must have 2 axes, not [3, 5, 64]");
  expect_shape_error(
      [&] {
        embedding_quantised(i8({9, 64}), f({9, 2}), f({9, 1}), i({4}));
      },
      "embedding_quantised: mins of [9, 1] do not match scales of [9, 2]");
  expect_shape_error(
      [] {
        matmul_grouped_weight_grad(f({6, 4}), f({5, 2}), i({3}));
      },
      "matmul_grouped_weight_grad: x [6, 4] and dy [5, 2] must have the same number of rows");
  expect_shape_error(
      [] {
        conv1d(f({2, 3, 2}), f({4, 3, 3}));
      },
      "conv1d: a window of 3 does not fit a size of 2 padded by 0");
  expect_shape_error(
      [] {
        conv2d(f({2, 3, 4, 4}), f({4, 2, 3, 3}));
      },
      "conv2d: input [2, 3, 4, 4] has 3 channels, weight [4, 2, 3, 3] with 1 groups takes 2");
  expect_shape_error(
      [] {
        conv2d(f({2, 4, 4, 4}), f({3, 2, 3, 3}), {}, {.groups = 2});
      },
      "conv2d: 3 output channels do not divide into 2 groups");
  expect_shape_error(
      [] {
        conv2d(f({2, 3, 4, 4}), f({4, 3, 3, 3}), f({3}));
      },
      "conv2d: bias [3] does not match 4 output channels");
  expect_shape_error(
      [] {
        conv2d(f({2, 3, 4, 4}), f({4, 3, 3, 3}), {}, {.stride = {0, 1}});
      },
      "conv2d: stride must be two numbers of at least 1");
  expect_shape_error(
      [] {
        conv2d(f({2, 3, 4, 4}), f({4, 3, 3, 3}), {}, {.groups = 0});
      },
      "conv2d: groups must be at least 1, not 0");
  expect_shape_error(
      [] {
        conv2d_input_grad(f({1, 2, 3, 3}), f({2, 1, 2, 2}), {.size = {9, 9}});
      },
      "conv2d_input_grad: an input [1, 1, 9, 9] under weight [2, 1, 2, 2] does not give [1, 2, 3, 3]");
  expect_shape_error(
      [] {
        conv2d_input_grad(f({1, 2, 3, 3}), f({2, 1, 2, 2}), {});
      },
      "conv2d_input_grad: size must be the input's height and width");
  expect_shape_error(
      [] {
        conv2d_weight_grad(f({1, 3, 4, 4}), f({1, 2, 3, 3}), {.groups = 2, .size = {2, 2}});
      },
      "conv2d_weight_grad: 3 input channels do not divide into 2 groups");
  expect_shape_error(
      [] {
        max_pool2d(f({1, 1, 4, 4}), {.padding = {2, 0}});
      },
      "max_pool2d: padding must be at most half the kernel");
  expect_shape_error(
      [] {
        max_pool2d_grad(f({1, 1, 4, 4}), f({1, 1, 3, 3}), {});
      },
      "max_pool2d_grad: x [1, 1, 4, 4] does not pool to dy [1, 1, 3, 3]");
  expect_shape_error(
      [] {
        avg_pool2d_grad(f({1, 1, 3, 3}), {.size = {4, 4}});
      },
      "avg_pool2d_grad: x [1, 1, 4, 4] does not pool to dy [1, 1, 3, 3]");
}

TEST(ShapeErrors, OfBlocks) {
  expect_shape_error([] { softmax(f({2}), 1); }, "softmax: axis 1 is out of range for [2]");
  expect_shape_error([] { causal_softmax(f({2})); }, "causal_softmax: x must have at least 2 axes, not [2]");
  expect_shape_error([] { layer_norm(f({2, 3}), f({2})); }, "layer_norm: weight must be [3], not [2]");
  expect_shape_error([] { rms_norm(f({})); }, "rms_norm: x must have at least 1 axes, not []");
  expect_shape_error(
      [] {
        rope(f({1, 1, 2, 3}));
      },
      "rope: dims = 3 must be even, at least 2 and at most the head size 3");
  expect_shape_error([] { rope(f({1, 1, 2, 4}), i({1, 3})); }, "rope: positions must be [1, 2], not [1, 3]");
  expect_shape_error(
      [] {
        rope(f({1, 1, 2, 4}), {}, {.scaling = RopeScaling::llama3});
      },
      "rope: this scaling needs original_context");
  expect_shape_error([] { cross_entropy(f({2, 3}), i({3})); }, "cross_entropy: targets must be [2], not [3]");
  expect_shape_error([] { swiglu(f({2}), f({3})); }, "swiglu: [2] and [3] do not broadcast");
}

TEST(ShapeErrors, OfAttention) {
  const Shape q{2, 4, 5, 8}, k{2, 2, 5, 8};
  expect_shape_error(
      [&] {
        attention(f(q), f({2, 3, 5, 8}), f({2, 3, 5, 8}));
      },
      "attention: 4 query heads are not a multiple of 3 key heads");
  expect_shape_error(
      [&] {
        attention(f(q), f({2, 2, 5, 4}), f(k));
      },
      "attention: q [2, 4, 5, 8] and k [2, 2, 5, 4] must agree in batch and head size");
  expect_shape_error(
      [&] {
        attention(f(q), f(k), f({2, 2, 4, 8}));
      },
      "attention: k [2, 2, 5, 8] and v [2, 2, 4, 8] must agree except in head size");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.window = 3}); }, "attention: a window needs causal attention");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.window = -3}); }, "attention: window must not be negative");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.soft_cap = -1}); },
                     "attention: soft_cap must not be negative");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.ring = true}); },
                     "attention: a ring of keys needs lengths and positions, which say what each slot holds");
  expect_shape_error(
      [&] {
        attention(f(q), f(k), f(k), {.mask = f({4, 5})});
      },
      "attention: mask [4, 5] does not broadcast to [2, 4, 5, 5]");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.sinks = f({2})}); }, "attention: sinks must be [4], not [2]");
  expect_shape_error([&] { attention(f(q), f(k), f(k), {.lengths = i({3})}); },
                     "attention: lengths must be [2], not [3]");
  expect_shape_error(
      [&] {
        attention(f(q), f(k), f(k), {.positions = i({2, 4})});
      },
      "attention: positions must be [2, 5], not [2, 4]");
  expect_shape_error(
      [&] {
        attention(f({2, 5, 9}), f({2, 5, 9}), f({2, 5, 9}), {.heads = 2});
      },
      "split_heads: [2, 5, 9] does not split into 2 heads of [batch, time, heads * size]");
  expect_shape_error([] { merge_heads(f({2, 3})); }, "merge_heads: [2, 3] is not [batch, heads, time, size]");
}

TEST(ShapeErrors, OfCachesIn8Bits) {
  const auto words = [](const Shape& shape) { return typed(DType::u32, shape); };
  const Shape q{2, 4, 5, 64};
  expect_shape_error(
      [&] {
        attention(f(q), words({2, 2, 5, 18}), words({2, 2, 5, 18}));
      },
      "attention: k [2, 2, 5, 18] is an 8-bit cache, but no row of one has 18 words");
  expect_shape_error(
      [&] {
        attention(f(q), words({2, 2, 5, 9}), words({2, 2, 5, 17}));
      },
      "attention: q [2, 4, 5, 64] and k [2, 2, 5, 9], which holds 32 features in 8 bits, must agree in batch and head "
      "size");
  expect_shape_error(
      [&] {
        attention(f(q), words({2, 2, 5, 17}), f({2, 2, 5, 64}));
      },
      "attention: types u32 and f32 differ; cast one of them");
  expect_shape_error(
      [] {
        cache_append(typed(DType::u32, {1, 2, 8, 3}), f({1, 2, 1, 6}), i({1, 1}));
      },
      "cache_append: an 8-bit cache holds rows of a multiple of 4 features, not of 6");
  expect_shape_error(
      [] {
        cache_append(typed(DType::u32, {1, 2, 8, 4}), f({1, 2, 1, 8}), i({1, 1}));
      },
      "cache_append: rows of 8 features are 3 words of an 8-bit cache, not 4");
}

TEST(ShapeErrors, OfState) {
  expect_shape_error(
      [] {
        cache_append(f({1, 2, 8, 4}), f({1, 3, 1, 4}), i({1, 1}));
      },
      "cache_append: cache [1, 2, 8, 4] and values [1, 3, 1, 4] must agree except in time");
  expect_shape_error(
      [] {
        cache_append(f({1, 2, 8, 4}), f({1, 2, 1, 4}), i({1, 2}));
      },
      "cache_append: positions must be [1, 1], not [1, 2]");
  expect_shape_error([] { adam_update(f({2}), f({3}), f({2}), f({2}), f({}), i({})); },
                     "adam_update: grad must be [2], not [3]");
  expect_shape_error([] { adam_update(f({2}), typed(DType::f16, {2}), f({2}), f({2}), f({}), i({})); },
                     "adam_update: types f32 and f16 differ; cast one of them");
  expect_shape_error([] { sgd_update(f({2}), f({2}), f({}), {}, {.momentum = 0.9}); },
                     "sgd_update: momentum and a velocity go together");
  expect_shape_error([] { sgd_update(f({2}), typed(DType::f16, {2}), f({})); },
                     "sgd_update: types f32 and f16 differ; cast one of them");
}

TEST(ShapeErrors, OfRecurrences) {
  expect_shape_error(
      [] {
        causal_conv1d(f({1, 5, 4}), f({3, 4}));
      },
      "causal_conv1d: weight must be [4, 4], not [3, 4]");
  expect_shape_error(
      [] {
        causal_conv1d(f({1, 5, 4}), f({4, 0}));
      },
      "causal_conv1d: weight [4, 0] must have a fixed number of taps");
  expect_shape_error(
      [] {
        causal_conv1d(f({1, 5, 4}), f({4, 3}), {.state = f({1, 3, 4})});
      },
      "causal_conv1d: state must be [1, 2, 4], not [1, 3, 4]");
  expect_shape_error(
      [] {
        causal_conv1d(f({1, 5, 4}), f({4, 3}), {.slots = i({1})});
      },
      "causal_conv1d: slots need a state, of which they are rows");
  const auto attend = [](const Shape& k, const Shape& v, const Shape& gates, const RecurrentOptions& options) {
    linear_attention(f(k), f(k), f(v), f(gates), {}, options);
  };
  expect_shape_error(
      [&] {
        attend({1, 5, 2, 8}, {1, 6, 2, 8}, {1, 6, 2}, {});
      },
      "linear_attention: k [1, 5, 2, 8] and v [1, 6, 2, 8] must agree in batch and time");
  expect_shape_error(
      [&] {
        attend({1, 5, 2, 8}, {1, 5, 3, 8}, {1, 5, 3}, {});
      },
      "linear_attention: 3 heads of v are not a multiple of the 2 of q and k");
  expect_shape_error(
      [&] {
        attend({1, 5, 2, 8}, {1, 5, 4, 6}, {1, 5, 2}, {});
      },
      "linear_attention: log_decay must be [1, 5, 4], not [1, 5, 2]");
  expect_shape_error(
      [&] {
        attend({1, 5, 2, 8}, {1, 5, 4, 6}, {1, 5, 4}, {.state = f({1, 4, 6, 8})});
      },
      "linear_attention: state must be [1, 4, 8, 6], not [1, 4, 6, 8]");
  expect_shape_error(
      [&] {
        attend({1, 5, 2, 8}, {1, 5, 4, 6}, {1, 5, 4}, {.positions = i({1, 4})});
      },
      "linear_attention: positions must be [1, 5], not [1, 4]");
  expect_shape_error(
      [&] {
        attend({2, 5, 2, 8}, {2, 5, 4, 6}, {2, 5, 4}, {.state = f({9, 4, 8, 6}), .slots = f({2})});
      },
      "linear_attention: slots must be of an integer type, not f32; cast it");
}

TEST(ShapeErrors, OfLeavesAndUpdates) {
  expect_shape_error([] { tensor_input("x", {2, -3}); }, "tensor_input x: [2, -3] has a negative size");
  expect_shape_error([] { update(state_input("s", {2}), f({3})); }, "update: s is f32[2] but the new value is f32[3]");
  expect_shape_error([] { f({2}).dim(1); }, "dim: axis 1 is out of range for [2]");
}

}  // namespace
}  // namespace jerboa::test
