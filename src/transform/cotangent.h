#pragma once

#include <vector>

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// The gradient contribution of one use of a tensor: of the tensor's shape, or a part that is zero elsewhere.
struct Contribution {
  Tensor tensor;
  int axis = -1;  ///< of a part: the axis along which it covers only some of the tensor
  Dim start;      ///< of a part: its offset along that axis

  Contribution() = default;
  Contribution(Tensor whole) : tensor(whole) {}  // NOLINT: most contributions are whole
  Contribution(Tensor part, int along, Dim from) : tensor(part), axis(along), start(std::move(from)) {}
  explicit operator bool() const { return static_cast<bool>(tensor); }
  bool is_part() const { return axis >= 0; }
};

/// Accumulates the gradient of a tensor over its uses. Parts are collected: slices of one tensor become one
/// concatenation, not a sum of tensors that are mostly zeros.
class Cotangent {
 public:
  void add(const Contribution& more);
  explicit operator bool() const { return whole_ || !parts_.empty(); }
  /// The sum so far, for a tensor of this shape; empty if there is none.
  Tensor total(const Shape& shape);

 private:
  void add_whole(const Tensor& more);
  void add_parts_along(int axis, const Shape& shape);

  Tensor whole_;
  std::vector<Contribution> parts_;
};

}  // namespace jerboa::detail
