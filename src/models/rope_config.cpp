#include "models/rope_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

void read_llama3(const Config& scaling, RopeAttrs& attrs) {
  attrs.scaling = RopeScaling::llama3;
  attrs.low_freq_factor = scaling.positive("low_freq_factor");
  attrs.high_freq_factor = scaling.positive("high_freq_factor");
  if (attrs.high_freq_factor <= attrs.low_freq_factor)
    scaling.fail("high_freq_factor", fmt::format("is not above low_freq_factor {}", attrs.low_freq_factor));
}

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(const Config& scaling, RopeAttrs& attrs) {
  attrs.scaling = RopeScaling::yarn;
  attrs.beta_fast = scaling.positive("beta_fast", attrs.beta_fast);
  attrs.beta_slow = scaling.positive("beta_slow", attrs.beta_slow);
  if (attrs.beta_fast <= attrs.beta_slow)
    scaling.fail("beta_fast", fmt::format("is not above beta_slow {}", attrs.beta_slow));
  attrs.attention_factor = scaling.positive("attention_factor", 0);
  // Zero means none, as null does.
  if (attrs.attention_factor == 0 && scaling.number("mscale", 0) != 0 && scaling.number("mscale_all_dim", 0) != 0)
    attrs.attention_factor = yarn_magnitude(scaling.positive("factor"), scaling.positive("mscale")) /
                             yarn_magnitude(scaling.positive("factor"), scaling.positive("mscale_all_dim"));
}

// Dynamic scaling changes the frequencies for sequences beyond max_position_embeddings, which graphs never exceed. Only
// `alpha`, in Hunyuan's models, changes them for all sequences.
void read_dynamic(const Config& scaling, int dims, RopeAttrs& attrs) {
  if (!scaling.has("alpha")) return;
  if (dims <= 2) scaling.fail("alpha", "needs heads with more than 2 rotated features");
  attrs.base *= std::pow(scaling.positive("alpha"), dims / (dims - 2.0));
}

void read_scaling(const Config& scaling, const std::string& type, int longest, RopeAttrs& attrs) {
  if (type == "linear")
    attrs.scaling = RopeScaling::linear;
  else if (type == "llama3")
    read_llama3(scaling, attrs);
  else if (type == "yarn" && !scaling.flag("truncate", true))
    scaling.fail("truncate", "is not supported for this model");
  else if (type == "yarn")
    read_yarn(scaling, attrs);
  else
    throw FileError(fmt::format("{}: unknown type of rotary embedding {}", scaling.origin(), in_quotes(type)));
  attrs.factor = scaling.positive("factor");
  attrs.original_context = scaling.size("original_max_position_embeddings", longest);
  if (attrs.original_context == 0 && type != "linear")
    throw FileError(fmt::format("{}: original_max_position_embeddings is missing, and so is max_position_embeddings",
                                scaling.origin()));
}

double rope_base(const Config& config, const Config& parameters, double usual) {
  const Config& source = parameters.has("rope_theta") ? parameters : config;
  const double base = source.number("rope_theta", usual);
  if (!(base > 1)) source.fail("rope_theta", "is not above 1");
  return base;
}

// The number of leading features of a head that are rotated in pairs; an odd number is rounded up.
int rotary_size(const Config& config, const Config& parameters, int head_size) {
  const Config& source = parameters.has("partial_rotary_factor") ? parameters : config;
  const double part = source.positive("partial_rotary_factor", 1);
  if (part > 1) source.fail("partial_rotary_factor", "is above 1");
  const int size = static_cast<int>(head_size * part);
  if (size < 1 || size + size % 2 > head_size)
    throw FileError(
        fmt::format("{}: {} of {} features of a head are rotated, but that must be an even number of at least 2 "
                    "(head_dim, or hidden_size / num_attention_heads, times partial_rotary_factor)",
                    config.origin(), size, head_size));
  return size;
}

}  // namespace

RopeAttrs unscaled_rope(const Config& config, const Config& parameters, int head_size) {
  RopeAttrs attrs;
  attrs.base = rope_base(config, parameters, attrs.base);
  const int rotated = rotary_size(config, parameters, head_size), even = rotated + rotated % 2;
  if (even != head_size) attrs.dims = even;
  // The exponents of the frequencies are computed from the odd number.
  if (even != rotated) attrs.base = std::pow(attrs.base, static_cast<double>(even) / rotated);
  return attrs;
}

RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size) {
  RopeAttrs attrs = unscaled_rope(config, parameters, head_size);
  const std::string type = parameters.text("rope_type", parameters.text("type", "default"));
  if (type == "default") return attrs;
  const int rotated = rotary_size(config, parameters, head_size);
  if (rotated % 2 != 0)
    throw FileError(fmt::format("{}: rope_type {} cannot be combined with an odd number of rotated features, {}",
                                parameters.origin(), type, rotated));
  if (type == "dynamic")
    read_dynamic(parameters, rotated, attrs);
  else
    read_scaling(parameters, type, config.size("max_position_embeddings", 0), attrs);
  return attrs;
}

RopeAttrs rope_attrs(const Config& config, int head_size) {
  const auto older = config.section("rope_scaling").value_or(config);
  return rope_attrs(config, config.section("rope_parameters").value_or(older), head_size);
}

namespace {

/// YaRN with a ramp that need not begin and end at whole pairs.
RopeTable exact_yarn(const Config& config, const Config& parameters, int head_size) {
  RopeAttrs attrs;
  read_yarn(parameters, attrs);
  attrs.base = rope_base(config, parameters, attrs.base);
  attrs.factor = parameters.positive("factor");
  attrs.original_context = parameters.has("original_max_position_embeddings")
                               ? parameters.size("original_max_position_embeddings")
                               : config.size("max_position_embeddings");
  const int dims = rotary_size(config, parameters, head_size);
  if (dims % 2 != 0) parameters.fail("rope_type", fmt::format("needs an even number of features, not {}", dims));
  const auto pair_with = [&](double turns) {
    return dims * std::log(attrs.original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(attrs.base));
  };
  const double low = std::max(pair_with(attrs.beta_fast), 0.0);
  double high = std::min(pair_with(attrs.beta_slow), dims - 1.0);
  if (low == high) high += 0.001;
  RopeTable table = rope_table(attrs, dims);
  for (int pair = 0; pair < dims / 2; ++pair) {
    const double frequency = std::pow(attrs.base, -2.0 * pair / dims);
    const double stretched = std::clamp((pair - low) / (high - low), 0.0, 1.0);
    table.frequencies[static_cast<std::size_t>(pair)] =
        frequency / attrs.factor * stretched + frequency * (1 - stretched);
  }
  return table;
}

/// Rotates only the fastest pairs, with the frequencies that they would have if all pairs were rotated.
RopeTable proportional(const Config& config, const Config& parameters, int head_size) {
  const double base = rope_base(config, parameters, RopeAttrs().base);
  const double part = parameters.positive("partial_rotary_factor", 1), factor = parameters.positive("factor", 1);
  if (part > 1) parameters.fail("partial_rotary_factor", "is above 1");
  const int rotated = static_cast<int>(std::floor(part * head_size / 2));
  RopeTable table;
  for (int pair = 0; pair < head_size / 2; ++pair)
    table.frequencies.push_back(pair < rotated ? std::pow(base, -2.0 * pair / head_size) / factor : 0);
  return table;
}

}  // namespace

RopeTable rope_frequencies(const Config& config, const Config& parameters, int head_size) {
  const std::string type = parameters.text("rope_type", parameters.text("type", "default"));
  if (type == "proportional") return proportional(config, parameters, head_size);
  if (type == "yarn" && !parameters.flag("truncate", true)) return exact_yarn(config, parameters, head_size);
  return rope_table(rope_attrs(config, parameters, head_size), head_size);
}

RopeTable rope_frequencies(const Config& config, int head_size) {
  const auto older = config.section("rope_scaling").value_or(config);
  return rope_frequencies(config, config.section("rope_parameters").value_or(older), head_size);
}

}  // namespace jerboa::models
