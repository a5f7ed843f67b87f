#pragma once

#include <cstdint>

namespace jerboa {

/// SplitMix64: a counter through a mixing function. For initial values and shuffles: fast, and the same everywhere.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(next() >> 11) + 1) * 0x1p-53; }
  /// From 0 to bound - 1; bound must be positive and far below 2^64, so that the remainder's bias is nothing.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace jerboa
