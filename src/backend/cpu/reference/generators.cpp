#include <cmath>
#include <numbers>

#include <jerboa/base/random.h>

#include "backend/cpu/reference/evaluate.h"
#include "backend/cpu/reference/loops.h"

// Ops whose values are computed from counters.
namespace jerboa::reference {
namespace {

double uniform(WordPair bits) { return (bits.first >> 8) * 0x1p-24; }

// Box-Muller; the first number is from (0, 1], so that its logarithm is finite.
double normal(WordPair bits) {
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
  const WordPair keys{static_cast<std::uint32_t>(key.data[0]), static_cast<std::uint32_t>(key.data[1])};
  Value& out = call.out();
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const WordPair bits = threefry(keys, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(attrs.stream)});
    out.data[i] = attrs.distribution == Distribution::normal ? normal(bits) : uniform(bits);
  }
}

}  // namespace jerboa::reference
