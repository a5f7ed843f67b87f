#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

#include "wgsl/shared_device.h"

// Functions that WGSL provides, but less accurately than models need. Without an adapter the tests fail and say why.
namespace jerboa::wgsl::functions_test {
namespace {

// The largest relative error of a function of `count` numbers from `low` to `high`, in units of f32's last place.
double largest_error(const std::function<Tensor(const Tensor&)>& function, double (*exact)(double), double low,
                     double high) {
  constexpr std::int64_t count = 4096;
  const Graph graph = trace([&] { output("y", function(tensor_input("x", {count}))); });
  HostTensor x(DType::f32, {count});
  for (std::int64_t i = 0; i < count; ++i) x.set_number(i, low + (high - low) * static_cast<double>(i) / (count - 1));
  Session session(test::shared_device(0, [](int) { return WebGpuOptions{}; }));
  session.add_entry("run", graph);
  const HostTensor y = session.run("run", {{"x", x}}).get("y");
  double most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double wanted = exact(x.number(i));
    most = std::max(most, std::abs(y.number(i) - wanted) / wanted);
  }
  return most / std::ldexp(1, -23);
}

TEST(Functions, ExponentialsAreExactToTheLastPlace) {
  const auto exponential = [](const Tensor& x) { return exp(x); };
  EXPECT_LT(largest_error(exponential, &std::exp, -80, 80), 2);
  EXPECT_LT(largest_error(exponential, &std::exp, -1, 1), 2);
}

TEST(Functions, SigmoidsAreExactToAFewPlaces) {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(largest_error([](const Tensor& x) { return sigmoid(x); }, exact, -80, 80), 5);
}

TEST(Functions, SoftplusIsExactToAFewPlaces) {
  const auto exact = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_LT(largest_error([](const Tensor& x) { return softplus(x); }, exact, -80, 80), 5);
}

}  // namespace
}  // namespace jerboa::wgsl::functions_test
