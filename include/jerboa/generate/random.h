#pragma once

#include <cstdint>

namespace jerboa {

/// Random numbers by counter: the n-th depends on the seed and n alone, and is the same on every platform (SplitMix64).
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t seed, std::uint64_t counter = 0) : seed_(seed), counter_(counter) {}

  std::uint64_t next() {
    std::uint64_t x = seed_ + ++counter_ * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  /// In [0, 1), with 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// How many were drawn: with the seed, all there is to save.
  std::uint64_t counter() const { return counter_; }

 private:
  std::uint64_t seed_, counter_;
};

}  // namespace jerboa
