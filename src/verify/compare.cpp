#include "verify/compare.h"

#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace jerboa {

std::optional<std::string> difference(std::span<const double> computed, std::span<const double> golden,
                                      const Tolerance& tolerance) {
  if (computed.size() != golden.size()) return fmt::format("{} values instead of {}", computed.size(), golden.size());
  double error_square = 0, golden_square = 0, worst = 0;
  std::size_t worst_at = 0, wrong = 0;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double error = std::abs(computed[i] - golden[i]);
    const double bound = tolerance.absolute + tolerance.relative * std::abs(golden[i]);
    const double excess = error == 0 ? 0 : error / bound;
    if (!(excess <= 1)) ++wrong;
    if (!(excess <= worst)) {
      worst = excess;
      worst_at = i;
    }
    error_square += error * error;
    golden_square += golden[i] * golden[i];
  }
  if (wrong > 0)
    return fmt::format("{} of {} values differ, the most at {}: {:.7g} instead of {:.7g}", wrong, golden.size(),
                       worst_at, computed[worst_at], golden[worst_at]);
  // A tensor of zeros has no relative error; the absolute bound has covered it already.
  if (golden_square > 0 && !(std::sqrt(error_square / golden_square) <= tolerance.norm))
    return fmt::format("the relative error of the whole tensor is {:.3g}", std::sqrt(error_square / golden_square));
  return std::nullopt;
}

Tolerance tolerance_for_typical(std::span<const double> golden) {
  const double squares = std::inner_product(golden.begin(), golden.end(), golden.begin(), 0.0);
  return {.relative = 0, .absolute = 1e-4 * std::sqrt(squares / static_cast<double>(golden.size())), .norm = 1e-4};
}

}  // namespace jerboa
