#pragma once

#include <bit>
#include <cstdint>

namespace jerboa {

/// The step of SplitMix64's counter, and its mixing function.
inline constexpr std::uint64_t split_mix_step = 0x9e3779b97f4a7c15u;
inline constexpr std::uint64_t split_mix_factors[] = {0xbf58476d1ce4e5b9u, 0x94d049bb133111ebu};
constexpr std::uint64_t split_mix(std::uint64_t counter) {
  counter = (counter ^ (counter >> 30)) * split_mix_factors[0];
  counter = (counter ^ (counter >> 27)) * split_mix_factors[1];
  return counter ^ (counter >> 31);
}

/// SplitMix64: a counter through a mixing function. For initial values and shuffles: fast, and the same everywhere.
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() { return split_mix(state_ += split_mix_step); }
  /// In (0, 1].
  double uniform() { return (static_cast<double>(next() >> 11) + 1) * 0x1p-53; }
  /// From 0 to bound - 1; bound must be positive and far below 2^64, so that the modulo bias is negligible.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

/// Two 32-bit words: a key, a counter, or Threefry's output.
struct WordPair {
  std::uint32_t first = 0, second = 0;

  friend bool operator==(const WordPair&, const WordPair&) = default;
};

/// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"): a counter through
/// additions, rotations and exclusive ors. For random numbers inside graphs.
constexpr WordPair threefry(WordPair key, WordPair counter) {
  constexpr int rotations[] = {13, 15, 26, 6, 17, 29, 16, 24};
  const std::uint32_t keys[] = {key.first, key.second, 0x1bd11bdau ^ key.first ^ key.second};
  WordPair x{counter.first + keys[0], counter.second + keys[1]};
  for (std::uint32_t round = 0; round < 20; ++round) {
    x.first += x.second;
    x.second = std::rotl(x.second, rotations[round % 8]) ^ x.first;
    if (round % 4 != 3) continue;
    const std::uint32_t injection = round / 4 + 1;
    x.first += keys[injection % 3];
    x.second += keys[(injection + 1) % 3] + injection;
  }
  return x;
}

}  // namespace jerboa
