#pragma once

#include <vector>

#include <jerboa/ops/ops.h>
#include <jerboa/transform/grad.h>

// Graphs that are as deep as they are large, with their gradients.
namespace jerboa::test {

inline void output_gradients(const Tensor& loss) {
  output("loss", loss);
  for (const ParamGrad& pair : append_grad(loss)) output("d_" + pair.param.name(), pair.grad);
}

/// y = tanh(y * 1.01 + x), repeatedly.
inline Graph chain_of_links(int links) {
  return trace([&] {
    const Tensor x = param_input("x", {16, 32});
    Tensor y = x;
    for (int i = 0; i < links; ++i) y = tanh(y * 1.01 + x);
    output_gradients(mean(y));
  });
}

/// A fully unrolled LSTM: each step reads its time step of the input and the four gates as slices.
inline Graph unrolled_lstm(int steps) {
  constexpr int batch = 4, inputs = 16, width = 32;
  return trace([&] {
    const Tensor x = tensor_input("x", {batch, steps, inputs});
    const Tensor from_input = matmul(x, param_input("from_input", {inputs, 4 * width}));
    const Tensor recurrent = param_input("recurrent", {width, 4 * width});
    const Tensor bias = param_input("bias", {4 * width});
    Tensor h = zeros({batch, width}), c = zeros({batch, width});
    std::vector<Operand> outputs;
    for (int t = 0; t < steps; ++t) {
      const Tensor now = reshape(slice(from_input, 1, t, t + 1), {batch, 4 * width});
      const auto gates = split<4>(now + matmul(h, recurrent) + bias);
      c = sigmoid(gates[0]) * c + sigmoid(gates[1]) * tanh(gates[2]);
      h = sigmoid(gates[3]) * tanh(c);
      outputs.emplace_back(reshape(h, {batch, 1, width}));
    }
    const Tensor all = concat(outputs, 1);
    output_gradients(mean(all * all));
  });
}

}  // namespace jerboa::test
