#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <jerboa/base/dtype.h>
#include <jerboa/ir/graph.h>

namespace jerboa::cli {

/// The name of a matrix product: matmul4096, matmul8192x768x3072_f16_weights.
struct ProductName {
  std::int64_t m = 0, k = 0, n = 0;
  DType dtype = DType::f32;
  bool weights = false;  ///< the second operand is [out, in], as weights are

  /// The product of random matrices. All of it is computed, but only one element is read back.
  Graph graph() const;
};

std::optional<ProductName> product_of(const std::string& name);

}  // namespace jerboa::cli
