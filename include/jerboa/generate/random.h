#pragma once

#include <cstdint>

#include <jerboa/base/random.h>

namespace jerboa {

/// Random numbers by counter: the n-th depends on the seed and n alone, and is the same on every platform (SplitMix64).
class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t seed, std::uint64_t counter = 0) : seed_(seed), counter_(counter) {}

  std::uint64_t next() { return split_mix(seed_ + ++counter_ * split_mix_step); }
  /// In [0, 1), with 53 random bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// The number of draws so far: with the seed, the complete state.
  std::uint64_t counter() const { return counter_; }

 private:
  std::uint64_t seed_, counter_;
};

}  // namespace jerboa
