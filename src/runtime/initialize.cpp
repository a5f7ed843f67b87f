#include "runtime/initialize.h"

#include <cmath>
#include <numbers>

namespace jerboa::detail {
namespace {

// SplitMix64: a counter through a mixing function, good enough for initial values and the same everywhere.
class Generator {
 public:
  explicit Generator(std::uint64_t state) : state_(state) {}
  /// In (0, 1].
  double uniform() { return (static_cast<double>(next() >> 11) + 1) * 0x1p-53; }

 private:
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t state_;
};

std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
  for (const unsigned char c : text) value = (value ^ c) * 0x100000001b3u;
  return value;
}

}  // namespace

HostTensor initial_values(const std::string& name, DType dtype, const Sizes& sizes, const Init& init, std::uint64_t seed) {
  HostTensor values(dtype, sizes);
  const std::int64_t count = values.size();
  if (init.kind == Init::Kind::constant) {
    if (init.mean != 0)
      for (std::int64_t i = 0; i < count; ++i) values.set_number(i, init.mean);
    return values;
  }
  Generator generator(hash(name) ^ (seed * 0x2545f4914f6cdd1du));
  for (std::int64_t i = 0; i < count; ++i) {
    const double u = generator.uniform();
    const double spread = init.kind == Init::Kind::uniform
                              ? 2 * u - 1
                              : std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * generator.uniform());
    values.set_number(i, init.mean + init.width * spread);
  }
  return values;
}

}  // namespace jerboa::detail
