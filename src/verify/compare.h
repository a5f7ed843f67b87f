#pragma once

#include <optional>
#include <span>
#include <string>

namespace jerboa {

/// How far computed values may be from golden ones: each value by `absolute` plus `relative` times the golden one, and
/// the whole tensor by `norm` times its Euclidean norm.
struct Tolerance {
  double relative = 1e-4, absolute = 1e-5, norm = 1e-4;
};

/// Describes the mismatch, with the worst error and its index; empty if the values match. NaN never matches.
std::optional<std::string> difference(std::span<const double> computed, std::span<const double> golden,
                                      const Tolerance& tolerance = {});

/// For values that may be near zero as the result of cancellation: every error is compared with a ten-thousandth of a
/// typical value's size.
Tolerance tolerance_for_typical(std::span<const double> golden);

}  // namespace jerboa
