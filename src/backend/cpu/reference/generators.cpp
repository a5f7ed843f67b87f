#include <bit>
#include <cmath>
#include <numbers>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Ops whose values come from counting.
namespace jerboa::reference {
namespace {

struct Pair {
  std::uint32_t first, second;
};

// Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
Pair threefry(Pair key, Pair counter) {
  constexpr int rotations[] = {13, 15, 26, 6, 17, 29, 16, 24};
  const std::uint32_t keys[] = {key.first, key.second, 0x1bd11bdau ^ key.first ^ key.second};
  Pair x{counter.first + keys[0], counter.second + keys[1]};
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

double uniform(Pair bits) { return (bits.first >> 8) * 0x1p-24; }

// Box-Muller; the first number is from (0, 1], so that its logarithm is finite.
double normal(Pair bits) {
  const double radius = std::sqrt(-2 * std::log(((bits.first >> 8) + 1) * 0x1p-24));
  return radius * std::cos(2 * std::numbers::pi * ((bits.second >> 8) * 0x1p-24));
}

}  // namespace

template <>
void evaluate<Op::arange>(const Call& call) {
  const auto& attrs = call.as<ArangeAttrs>();
  Value& out = call.out();
  for (std::size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = wrapped(attrs.start + static_cast<double>(i) * attrs.step, out.dtype);
}

template <>
void evaluate<Op::random>(const Call& call) {
  const auto& attrs = call.as<RandomAttrs>();
  const Value& key = call.in(0);
  const Pair keys{static_cast<std::uint32_t>(key.data[0]), static_cast<std::uint32_t>(key.data[1])};
  Value& out = call.out();
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const Pair bits = threefry(keys, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(attrs.stream)});
    out.data[i] = attrs.distribution == Distribution::normal ? normal(bits) : uniform(bits);
  }
}

}  // namespace jerboa::reference
