#pragma once

#include <vector>

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// What one use of a tensor passes back to it: a gradient of its shape, or a part of one that is zero elsewhere.
struct Contribution {
  Tensor tensor;
  int axis = -1;  ///< of a part: the axis along which it covers only some of the tensor
  Dim start;      ///< of a part: where it begins there

  Contribution() = default;
  Contribution(Tensor whole) : tensor(whole) {}  // NOLINT: most contributions are whole
  Contribution(Tensor part, int along, Dim from) : tensor(part), axis(along), start(std::move(from)) {}
  explicit operator bool() const { return static_cast<bool>(tensor); }
  bool is_part() const { return axis >= 0; }
};

/// The gradient of a tensor while it is being added up over the tensor's uses. Parts wait for each other: slices of one
/// tensor give one concatenation, not a sum of tensors that are mostly zeros.
class Cotangent {
 public:
  void add(const Contribution& more);
  explicit operator bool() const { return whole_ || !parts_.empty(); }
  /// The sum so far, for a tensor of this shape; empty where there is none.
  Tensor total(const Shape& shape);

 private:
  void add_whole(const Tensor& more);
  void add_parts_along(int axis, const Shape& shape);

  Tensor whole_;
  std::vector<Contribution> parts_;
};

}  // namespace jerboa::detail
