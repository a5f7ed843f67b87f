#pragma once

#include <random>
#include <string>
#include <vector>

#include <jerboa/ops/ops.h>

#include "ops/sample.h"

namespace jerboa::test {

/// A product whose operands are computed as they are read.
struct ProductCase {
  std::int64_t batch, rows, inner, columns;
  bool transpose_a = false, transpose_b = false;
};

/// From a single element to several tiles, and in all transposed forms.
inline std::vector<ProductCase> product_cases() {
  std::vector<ProductCase> cases{{1, 1, 1, 1}, {1, 2, 70, 33}, {3, 5, 7, 6}, {1, 70, 40, 3}, {1, 150, 96, 200}};
  for (const bool a : {false, true})
    for (const bool b : {false, true}) cases.push_back({2, 33, 40, 52, a, b});
  return cases;
}

inline std::string describe(const ProductCase& product) {
  return std::to_string(product.batch) + " x " + std::to_string(product.rows) + " x " + std::to_string(product.inner) +
         " x " + std::to_string(product.columns) + (product.transpose_a ? ", a transposed" : "") +
         (product.transpose_b ? ", b transposed" : "");
}

/// Both operands have a prologue; that of the second begins with a cast if it is not f32. The constant added to the
/// first shows whether padding stays zero.
inline Sample product_of_prologues(const ProductCase& product, DType second = DType::f32) {
  Sample sample;
  sample.graph = trace([&] {
    const Tensor a = tensor_input("a", product.transpose_a ? Shape{product.batch, product.inner, product.rows}
                                                           : Shape{product.batch, product.rows, product.inner});
    const Tensor b = tensor_input(
        "b", product.transpose_b ? Shape{product.columns, product.inner} : Shape{product.inner, product.columns},
        second);
    output("out0", matmul(relu(a) * 0.5 + 1, clamp(abs(cast(b, DType::f32) - 0.25), 0.1, 0.8),
                          {.transpose_a = product.transpose_a, .transpose_b = product.transpose_b}));
  });
  std::mt19937 random(1);
  for (const TensorInfo& tensor : sample.graph.tensors) {
    if (tensor.storage != Storage::input) continue;
    Value value{tensor.type.dtype, evaluate(tensor.type.shape, {}), {}};
    for (std::int64_t i = 0; i < element_count(value.shape); ++i)
      value.data.push_back(std::uniform_int_distribution(-64, 64)(random) / 64.0);
    sample.inputs.emplace(tensor.name, std::move(value));
  }
  return sample;
}

}  // namespace jerboa::test
