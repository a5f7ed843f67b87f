#include "compile/initialize.h"

#include <cmath>
#include <numbers>

#include <jerboa/base/random.h>

namespace jerboa::detail {
namespace {

std::uint64_t hash(const std::string& text) {
  std::uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
  for (const unsigned char c : text) value = (value ^ c) * 0x100000001b3u;
  return value;
}

}  // namespace

HostTensor initial_values(const std::string& name, DType dtype, const Sizes& sizes, const Init& init,
                          std::uint64_t seed) {
  HostTensor values(dtype, sizes);
  const std::int64_t count = values.size();
  if (init.kind == Init::Kind::constant) {
    if (init.mean != 0)
      for (std::int64_t i = 0; i < count; ++i) values.set_number(i, init.mean);
    return values;
  }
  SplitMix generator(hash(name) ^ (seed * 0x2545f4914f6cdd1du));
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
