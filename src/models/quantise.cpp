#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/models/quantise.h>

namespace jerboa::models {
namespace {

constexpr std::int64_t group = quantised_group;

// The value that is farthest from 0.
float extreme(std::span<const float> values) {
  return *std::max_element(values.begin(), values.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
}

void put_i8(std::span<const float> values, float inverse, std::uint8_t* to) {
  for (const float value : values)
    *to++ = static_cast<std::uint8_t>(
        static_cast<std::int8_t>(std::clamp(std::nearbyint(value * inverse), -127.0F, 127.0F)));
}

// In the order that DType describes.
void put_i4(std::span<const float> values, float inverse, std::uint8_t* to) {
  const auto at = [&](std::int64_t i) {
    return static_cast<unsigned>(
        std::clamp(std::nearbyint(values[static_cast<std::size_t>(i)] * inverse), -8.0F, 7.0F) + 8);
  };
  for (std::int64_t j = 0; j < group / 2; ++j) *to++ = static_cast<std::uint8_t>(at(j) | at(j + group / 2) << 4);
}

}  // namespace

Quantised quantise(std::span<const float> values, std::int64_t out, std::int64_t in, DType dtype) {
  if (dtype != DType::i8 && dtype != DType::i4)
    throw UsageError(fmt::format("weights can be quantised to int8 or int4, not to {}", name(dtype)));
  if (in % group != 0 || std::ssize(values) != out * in)
    throw UsageError(fmt::format("{} weights cannot be quantised as [{}, {}]: the row length must be a multiple of {}",
                                 values.size(), out, in, group));
  Quantised result{HostTensor(dtype, {out, in}), HostTensor(DType::f16, {out, in / group})};
  auto* to = reinterpret_cast<std::uint8_t*>(result.weight.bytes().data());
  for (std::int64_t at = 0; at < out * in; at += group) {
    const auto weights = values.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(group));
    // For int4 the value farthest from zero becomes -8, the end of the range that reaches farther.
    const float scale_f32 = dtype == DType::i8 ? std::abs(extreme(weights)) / 127 : extreme(weights) / -8;
    const std::uint16_t scale = f32_to_f16(scale_f32);  // rounded first: the weights are divided by the stored scale
    result.scales.as<std::uint16_t>()[static_cast<std::size_t>(at / group)] = scale;
    const float inverse = f16_to_f32(scale) == 0 ? 0 : 1 / f16_to_f32(scale);
    if (dtype == DType::i8)
      put_i8(weights, inverse, to + at);
    else
      put_i4(weights, inverse, to + at / 2);
  }
  return result;
}

}  // namespace jerboa::models
