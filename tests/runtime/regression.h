#pragma once

#include <string>

#include <jerboa/compile/graphs.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>
#include <jerboa/transform/optimizer.h>

namespace jerboa::test {

/// A training step small enough to follow by hand: mean((x w + b - y)²) over x[4, 3], with Adam, captures "error" and
/// "prediction", and the gradients kept. With dropout, rows of x are dropped at random.
inline Graph regression_step(bool dropout = false, const Optimizer& optimizer = Adam{.lr = 0.1}) {
  return trace([&] {
    Tensor x = tensor_input("x", {4, 3});
    const Tensor y = tensor_input("y", {4});
    const Tensor w = param_input("w", {3}, {.init = Init::normal(1)});
    const Tensor b = param_input("b", {}, {.decay = false});
    if (dropout) x = where(random_uniform({4, 1}) >= 0.5, x * 2, 0);
    const Tensor prediction = capture(sum(x * w, {-1}) + b, "prediction");
    const Tensor loss = mean(square(capture(prediction - y, "error")));
    const auto grads = append_grad(loss);
    keep_gradients(grads);
    append_optimizer(grads, optimizer);
    output("loss", loss);
  });
}

/// x w + b over the same parameters.
inline Graph regression_forward() {
  return trace([] {
    const Tensor x = tensor_input("x", {Dim::symbol("N", 16), 3});
    output("output", sum(x * param_input("w", {3}, {.init = Init::normal(1)}), {-1}) + param_input("b", {}));
  });
}

inline TensorMap regression_batch(float shift = 0) {
  HostTensor x(DType::f32, {4, 3}), y(DType::f32, {4});
  for (int i = 0; i < 12; ++i)
    x.f32()[static_cast<std::size_t>(i)] = 0.25f * static_cast<float>((i * 5) % 7) - 0.5f + shift;
  for (int i = 0; i < 4; ++i) y.f32()[static_cast<std::size_t>(i)] = static_cast<float>(i) - 1.5f;
  return {{"x", x}, {"y", y}};
}

inline Session regression_session(std::uint64_t seed = 0, bool dropout = false) {
  Session session(Device::reference(), {.seed = seed});
  session.add_entry("step", regression_step(dropout));
  return session;
}

/// Everything that a session keeps, so that two can be compared bit for bit.
inline TensorMap everything(const Session& session) {
  TensorMap all = session.download_params();
  for (const std::string& name : session.state_names()) all.emplace("state " + name, session.download_state(name));
  for (const auto& [name, grad] : session.download_param_grads()) all.emplace("grad " + name, grad);
  return all;
}

}  // namespace jerboa::test
