#include <algorithm>
#include <cmath>
#include <numbers>

#include <jerboa/ir/rope.h>

namespace jerboa {
namespace {

// Low frequencies are stretched by the factor, high ones kept, those in between blended (Llama 3.1).
double llama3_frequency(const RopeAttrs& attrs, double frequency) {
  const double context = attrs.original_context;
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < context / attrs.high_freq_factor) return frequency;
  if (wavelength > context / attrs.low_freq_factor) return frequency / attrs.factor;
  const double smooth =
      (context / wavelength - attrs.low_freq_factor) / (attrs.high_freq_factor - attrs.low_freq_factor);
  return (1 - smooth) * frequency / attrs.factor + smooth * frequency;
}

// The pair that completes this many rotations over the original context (YaRN).
double yarn_pair(const RopeAttrs& attrs, double turns, double dims) {
  return dims * std::log(attrs.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(attrs.base));
}

// Pairs below `low` are kept, those above `high` stretched, with a linear ramp in between.
double yarn_frequency(const RopeAttrs& attrs, double frequency, double pair, double dims) {
  const double low = std::max(std::floor(yarn_pair(attrs, attrs.beta_fast, dims)), 0.0);
  double high = std::min(std::ceil(yarn_pair(attrs, attrs.beta_slow, dims)), dims - 1);
  if (low == high) high += 0.001;
  const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return frequency / attrs.factor * stretched + frequency * (1 - stretched);
}

}  // namespace

RopeTable rope_table(const RopeAttrs& attrs, std::int64_t head_size) {
  const std::int64_t dims = attrs.dims == 0 ? head_size : attrs.dims;
  RopeTable table;
  for (std::int64_t pair = 0; pair < dims / 2; ++pair) {
    const double frequency = std::pow(attrs.base, -2.0 * static_cast<double>(pair) / static_cast<double>(dims));
    switch (attrs.scaling) {
      case RopeScaling::none: table.frequencies.push_back(frequency); break;
      case RopeScaling::linear: table.frequencies.push_back(frequency / attrs.factor); break;
      case RopeScaling::llama3: table.frequencies.push_back(llama3_frequency(attrs, frequency)); break;
      case RopeScaling::yarn:
        table.frequencies.push_back(
            yarn_frequency(attrs, frequency, static_cast<double>(pair), static_cast<double>(dims)));
        break;
    }
  }
  if (attrs.scaling == RopeScaling::yarn) {
    const double usual = attrs.factor > 1 ? 0.1 * std::log(attrs.factor) + 1 : 1;
    table.magnitude = attrs.attention_factor != 0 ? attrs.attention_factor : usual;
  }
  return table;
}

}  // namespace jerboa
