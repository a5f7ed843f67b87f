#pragma once

#include <cstdint>
#include <vector>

#include <jerboa/ops/tensor.h>

namespace jerboa {

/// A learning rate over time as data: it runs inside the graph from the step counter, so a saved program carries it.
/// Pieces run in sequence; after the last one, its end value holds.
class Schedule {
 public:
  enum class Curve : std::uint8_t { linear, cosine };
  struct Piece {
    std::int64_t steps = 0;
    double from = 0, to = 0;
    Curve curve = Curve::linear;
  };

  /// Throws UsageError for a rate that is negative or not finite.
  Schedule(double constant);  // NOLINT: a number is a schedule
  /// Also throws if there are no pieces, or for a piece with a negative length.
  explicit Schedule(std::vector<Piece> pieces);

  /// The value at a step, counted from 1.
  double at(std::int64_t step) const;
  /// The same in the traced graph, for an i32 scalar.
  Tensor at(Operand step) const;
  const std::vector<Piece>& pieces() const { return pieces_; }

 private:
  std::vector<Piece> pieces_;
};

/// Throws UsageError unless the learning rate is finite and, where it must be, 0 or more.
void check_rate(double rate, bool may_be_negative = false);

/// Up to `peak` over `warmup` steps, then half a cosine down to `floor` at `total`.
Schedule warmup_cosine(double peak, std::int64_t warmup, std::int64_t total, double floor = 0);
/// Up to `peak` over `warmup` steps, then a straight line down to `floor` at `total`.
Schedule warmup_linear(double peak, std::int64_t warmup, std::int64_t total, double floor = 0);

}  // namespace jerboa
