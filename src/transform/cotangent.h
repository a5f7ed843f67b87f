#pragma once

#include <optional>
#include <vector>

#include <jerboa/ops/tensor.h>

namespace jerboa::detail {

/// The gradient contribution of one use of a tensor: of the tensor's shape, or a part, with zeros elsewhere.
struct Contribution {
  Tensor tensor;
  Shape starts;  ///< for a part: its offset along each axis

  Contribution() = default;
  Contribution(Tensor whole) : tensor(whole) {}  // NOLINT: most contributions are whole
  Contribution(Tensor part, int axis, const Dim& start)
      : tensor(part), starts(static_cast<std::size_t>(part.rank()), Dim(0)) {
    starts[static_cast<std::size_t>(axis)] = start;
  }
  explicit operator bool() const { return static_cast<bool>(tensor); }
  bool is_part() const { return !starts.empty(); }
};

/// Accumulates the gradient of a tensor over its uses. Parts are collected: slices of one tensor become one
/// concatenation, or nested ones for slices of slices, not a sum of tensors that are mostly zeros.
class Cotangent {
 public:
  void add(const Contribution& more);
  explicit operator bool() const { return whole_ || !parts_.empty(); }
  /// The sum so far, if it is a single part.
  std::optional<Contribution> single_part() const;
  /// The sum so far, for a tensor of this shape; empty if there is none.
  Tensor total(const Shape& shape);
  /// Passes parts of a tensor of shape `from` on to the tensor of shape `to` that was reshaped to it. Parts that are
  /// not blocks there stay, and so do all parts if a whole tensor is added to them.
  void pass_blocks_on(Cotangent& operand, const Shape& from, const Shape& to);

 private:
  void add_whole(const Tensor& more);
  void join_parts_along(std::size_t axis, const Shape& shape, bool with_lone_parts);
  void join(std::vector<Contribution> row, std::size_t axis, const Shape& shape);

  Tensor whole_;
  std::vector<Contribution> parts_;
};

}  // namespace jerboa::detail
