#pragma once

#include <gtest/gtest.h>

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
