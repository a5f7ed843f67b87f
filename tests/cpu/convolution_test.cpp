#include "backend/cpu/convolution.h"

#include "oracle.h"

namespace jerboa::cpu::convolution_test {
namespace {

using test::count_of;
using test::poison;

struct Case {
  std::string name;
  Sizes x;       // batch, channels, height, width
  Sizes weight;  // out channels, channels / groups, height, width
  Conv2dAttrs attrs = {};
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

class ConvolutionTest : public testing::TestWithParam<Case> {};

TEST_P(ConvolutionTest, AgreesWithTheReference) {
  const Case& c = GetParam();
  const auto x = test::normal_floats(count_of(c.x), 1), weight = test::normal_floats(count_of(c.weight), 2, 0.1F);
  const auto bias = test::normal_floats(c.weight[0], 3);
  const Value x_value = test::value_of(DType::f32, c.x, x), weight_value = test::value_of(DType::f32, c.weight, weight);
  const Value plain = test::reference_of(Op::conv2d, {x_value, weight_value, std::nullopt}, c.attrs)[0];
  const Value biased = test::reference_of(
      Op::conv2d, {x_value, weight_value, test::value_of(DType::f32, {c.weight[0]}, bias)}, c.attrs)[0];
  const auto dy = test::normal_floats(count_of(plain.shape), 4);
  const Value dy_value = test::value_of(DType::f32, plain.shape, dy);
  const auto grad_attrs = [&](const Sizes& shape) {
    return Conv2dGradAttrs{c.attrs.stride, c.attrs.padding, c.attrs.dilation, c.attrs.groups,
                           to_shape({shape[2], shape[3]})};
  };
  const Value dx_value = test::reference_of(Op::conv2d_input_grad, {dy_value, weight_value}, grad_attrs(c.x))[0];
  const Value dw_value = test::reference_of(Op::conv2d_weight_grad, {x_value, dy_value}, grad_attrs(c.weight))[0];

  const Convolution conv{c.x[0],
                         c.x[1],
                         c.weight[0],
                         {c.x[2], c.x[3]},
                         {plain.shape[2], plain.shape[3]},
                         {c.weight[2], c.weight[3]},
                         {c.attrs.stride[0], c.attrs.stride[1]},
                         {c.attrs.padding[0], c.attrs.padding[1]},
                         {c.attrs.dilation[0], c.attrs.dilation[1]},
                         c.attrs.groups};
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<float> y(dy.size(), poison), y_biased(dy.size(), poison), dx(x.size(), poison),
        dw(weight.size(), poison);
    run_conv2d(conv, x.data(), weight.data(), nullptr, y.data(), pool);
    run_conv2d(conv, x.data(), weight.data(), bias.data(), y_biased.data(), pool);
    run_conv2d_input_grad(conv, dy.data(), weight.data(), dx.data(), pool);
    run_conv2d_weight_grad(conv, x.data(), dy.data(), dw.data(), pool);
    const std::vector<std::vector<float>> results{y, y_biased, dx, dw};
    if (threads == 1)
      first = results;
    else
      ASSERT_EQ(results, first) << threads << " threads";
  }
  test::expect_close(first[0], plain.data, "y");
  test::expect_close(first[1], biased.data, "y with bias");
  test::expect_close(first[2], dx_value.data, "dx");
  test::expect_close(first[3], dw_value.data, "dweight", 1e-4, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Cases, ConvolutionTest,
                         testing::ValuesIn(std::vector<Case>{
                             {"one", {1, 1, 1, 1}, {1, 1, 1, 1}},
                             {"plain", {2, 3, 7, 9}, {4, 3, 3, 3}},
                             {"padded", {2, 3, 7, 9}, {5, 3, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
                             {"mnist", {3, 1, 28, 28}, {16, 1, 5, 5}, {{1, 1}, {2, 2}, {1, 1}, 1}},
                             {"mnist_second", {3, 16, 14, 14}, {32, 16, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
                             {"strided", {2, 3, 11, 13}, {4, 3, 3, 5}, {{2, 3}, {1, 2}, {1, 1}, 1}},
                             {"strided_leftover", {1, 2, 8, 8}, {3, 2, 3, 3}, {{3, 3}, {0, 0}, {1, 1}, 1}},
                             {"dilated", {2, 2, 12, 12}, {3, 2, 3, 3}, {{1, 1}, {2, 2}, {2, 3}, 1}},
                             {"everything", {2, 4, 13, 12}, {6, 2, 3, 2}, {{2, 1}, {3, 1}, {2, 3}, 2}},
                             {"depthwise", {2, 6, 9, 9}, {6, 1, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 6}},
                             {"pointwise", {2, 5, 6, 7}, {8, 5, 1, 1}},
                             {"pointwise_strided", {2, 5, 6, 7}, {8, 5, 1, 1}, {{2, 2}, {0, 0}, {1, 1}, 1}},
                             {"wide_padding", {1, 1, 2, 2}, {1, 1, 2, 2}, {{1, 1}, {4, 4}, {1, 1}, 1}},
                             {"line", {3, 4, 1, 50}, {6, 4, 1, 4}, {{1, 1}, {0, 3}, {1, 1}, 1}},
                             {"many_blocks", {1, 40, 40, 40}, {70, 40, 3, 3}, {{1, 1}, {1, 1}, {1, 1}, 1}},
                             {"large_batch", {37, 2, 5, 5}, {3, 2, 3, 3}},
                             {"no_batch", {0, 2, 5, 5}, {3, 2, 3, 3}},
                         }),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace jerboa::cpu::convolution_test
