#include "backend/cpu/pooling.h"

#include <algorithm>

#include "oracle.h"

namespace jerboa::cpu::pooling_test {
namespace {

using test::count_of;
using test::poison;

struct Case {
  std::string name;
  Sizes x;
  PoolAttrs attrs = {};
};
void PrintTo(const Case& c, std::ostream* stream) { *stream << c.name; }

class PoolingTest : public testing::TestWithParam<Case> {};

TEST_P(PoolingTest, AgreesWithTheReference) {
  const Case& c = GetParam();
  // Few distinct values, so that windows have ties.
  std::vector<float> x;
  for (const std::int32_t value : test::random_ints(count_of(c.x), 1, -4, 4))
    x.push_back(static_cast<float>(value) / 2);
  const Value x_value = test::value_of(DType::f32, c.x, x);
  const Value largest = test::reference_of(Op::max_pool2d, {x_value}, c.attrs)[0];
  const Value mean = test::reference_of(Op::avg_pool2d, {x_value}, c.attrs)[0];
  const auto dy = test::normal_floats(count_of(largest.shape), 2);
  const Value dy_value = test::value_of(DType::f32, largest.shape, dy);
  const PoolGradAttrs grad_attrs{c.attrs.kernel, c.attrs.stride, c.attrs.padding, to_shape({c.x[2], c.x[3]})};
  const Value largest_grad = test::reference_of(Op::max_pool2d_grad, {x_value, dy_value}, grad_attrs)[0];
  const Value mean_grad = test::reference_of(Op::avg_pool2d_grad, {dy_value}, grad_attrs)[0];

  const Pooling pooling{c.x[0] * c.x[1],
                        {c.x[2], c.x[3]},
                        {largest.shape[2], largest.shape[3]},
                        {c.attrs.kernel[0], c.attrs.kernel[1]},
                        {c.attrs.stride[0], c.attrs.stride[1]},
                        {c.attrs.padding[0], c.attrs.padding[1]}};
  std::vector<std::vector<float>> first;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    std::vector<std::vector<float>> results{std::vector<float>(dy.size(), poison),
                                            std::vector<float>(dy.size(), poison), std::vector<float>(x.size(), poison),
                                            std::vector<float>(x.size(), poison)};
    run_max_pool2d(pooling, x.data(), results[0].data(), pool);
    run_avg_pool2d(pooling, x.data(), results[1].data(), pool);
    run_max_pool2d_grad(pooling, x.data(), dy.data(), results[2].data(), pool);
    run_avg_pool2d_grad(pooling, dy.data(), results[3].data(), pool);
    if (threads == 1)
      first = results;
    else
      ASSERT_EQ(results, first) << threads << " threads";
  }
  test::expect_close(first[0], largest.data, "max");
  test::expect_close(first[1], mean.data, "avg");
  test::expect_close(first[2], largest_grad.data, "max grad");
  test::expect_close(first[3], mean_grad.data, "avg grad");
}

INSTANTIATE_TEST_SUITE_P(Cases, PoolingTest,
                         testing::ValuesIn(std::vector<Case>{
                             {"one", {1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0}}},
                             {"halves", {2, 3, 8, 6}},
                             {"odd", {2, 3, 9, 7}},
                             {"overlapping", {2, 3, 9, 10}, {{3, 3}, {2, 2}, {1, 1}}},
                             {"uneven", {2, 3, 9, 10}, {{3, 2}, {1, 3}, {1, 0}}},
                             {"gaps", {2, 3, 11, 11}, {{2, 2}, {4, 3}, {0, 0}}},
                             {"large", {3, 16, 28, 28}, {{2, 2}, {2, 2}, {0, 0}}},
                             {"whole", {2, 2, 5, 4}, {{5, 4}, {1, 1}, {0, 0}}},
                             {"no_batch", {0, 2, 5, 4}},
                         }),
                         [](const testing::TestParamInfo<Case>& test) { return test.param.name; });

}  // namespace
}  // namespace jerboa::cpu::pooling_test
