#pragma once

#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <initializer_list>
#include <string>

#include <jerboa/compile/export.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>

#include "support/expect_error.h"

// Tests of checked runs, for any device.
namespace jerboa::test {

/// A state that counts, and a tensor that becomes infinite after a division by zero, which no output shows.
inline Graph diverging_graph() {
  return trace([] {
    const Tensor count = state_input("count", {}, DType::f32);
    update(count, count + 1);
    const Tensor x = tensor_input("x", {3});
    const Tensor grown = exp(x * 100).named("grown");
    const Tensor ratio = (grown / (x - 2)).named("ratio");
    output("bounded", minimum(ratio, 10));
  });
}

inline void expect_finite_check(const Device& device) {
  Session session(device, {.check_finite = true});
  session.add_entry("run", diverging_graph());
  session.run("run", {{"x", HostTensor({3}, {0.25f, 0.5f, 0})}});
  EXPECT_EQ(session.download_state("count").item(), 1);
  const std::string message = message_of<NotFiniteError>([&] {
    session.run("run", {{"x", HostTensor({3}, {0, 1, 0.5f})}});
  });
  const bool has_kernels = device.name() != "reference";
  const std::string wanted =
      std::string("grown is not finite: exp produced NaN or infinity") + (has_kernels ? " in kernel '" : " (");
  EXPECT_NE(message.find(wanted), std::string::npos) << message;
  EXPECT_NE(message.find("run_checks.h:"), std::string::npos) << message;
  EXPECT_EQ(session.download_state("count").item(), 1) << "a run that failed changed a state";
}

/// A program that was compiled with checks has them wherever it runs, without its graph.
inline void expect_finite_check_of_a_program(const Device& device, const Target& target,
                                             const std::filesystem::path& path) {
  save_program(path, compile_program({{"run", diverging_graph()}}, target, {.finite = true}));
  Session session = Session::load_program(path, device, {.check_finite = true});
  const auto outputs = session.entries().at(0).outputs;
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].name, "bounded");
  const Result good = session.run("run", {{"x", HostTensor({3}, {0.25f, 0.5f, 0})}});
  EXPECT_EQ(good.names(), std::vector<std::string>{"bounded"});
  const std::string message = message_of<NotFiniteError>([&] {
    session.run("run", {{"x", HostTensor({3}, {0, 1, 0.5f})}});
  });
  EXPECT_NE(message.find("grown is not finite: exp produced NaN or infinity in kernel '"), std::string::npos)
      << message;
  EXPECT_NE(message.find("run_checks.h:"), std::string::npos) << message;
  EXPECT_EQ(session.download_state("count").item(), 1) << "a run that failed changed a state";
}

// The finite check names `wanted`, which is not finite at one element of x, whatever hides it from the output.
inline void expect_not_finite(const Device& device, const std::string& wanted,
                              const std::function<Tensor(const Tensor&)>& function, float x) {
  Session session(device, {.check_finite = true});
  session.add_entry("run", trace([&] {
                      const Tensor input = tensor_input("x", {4});
                      const Tensor computed = function(input).named("computed");
                      output("largest", argmax(where(equal(input, x), 0, computed), 0));
                    }));
  session.run("run", {{"x", HostTensor({4}, {1, 2, 0.5f, 3})}});
  const std::string message = message_of<NotFiniteError>([&] {
    session.run("run", {{"x", HostTensor({4}, {1, 2, x, 3})}});
  });
  EXPECT_NE(message.find("computed is not finite: " + wanted + " produced NaN or infinity"), std::string::npos)
      << wanted << " of " << x << ": " << message;
}

inline void expect_finite_check_of_functions(const Device& device) {
  const auto expect = [&](const std::string& wanted, const std::function<Tensor(const Tensor&)>& function,
                          std::initializer_list<float> places) {
    for (const float x : places) expect_not_finite(device, wanted, function, x);
  };
  expect("log", [](const Tensor& x) { return log(x); }, {0, -1});
  expect("exp", [](const Tensor& x) { return exp(x); }, {89, 1e30f});
  expect("sqrt", [](const Tensor& x) { return sqrt(x); }, {-1});
  expect("rsqrt", [](const Tensor& x) { return rsqrt(x); }, {0, -1});
  expect("div", [](const Tensor& x) { return 2 / x; }, {0});
  expect("div", [](const Tensor& x) { return x / (x + 7); }, {-7});
  expect("mul", [](const Tensor& x) { return x * 1e30; }, {1e30f});
  expect("pow", [](const Tensor& x) { return pow(x, -2); }, {0});
  expect("pow", [](const Tensor& x) { return pow(x, 0.3); }, {-1});
  expect("pow", [](const Tensor& x) { return pow(x, -0.3); }, {0, -1});
  expect("pow", [](const Tensor& x) { return pow(2, x); }, {200});
}

inline void expect_index_check(const Device& device) {
  Session session(device, {.check_indices = true});
  session.add_entry("run", trace([] {
                      const Tensor ids = cast(tensor_input("x", {2}) * 2, DType::i32).named("doubled");
                      output("rows", embedding(param_input("table", {5, 3}), ids));
                    }));
  session.run("run", {{"x", HostTensor({2}, {0, 2})}});
  expect_error<UsageError>(
      [&] {
        session.run("run", {{"x", HostTensor({2}, {0, 3})}});
      },
      "doubled holds 6, which is out of range for embedding: indices go from 0 to 4");
}

}  // namespace jerboa::test
