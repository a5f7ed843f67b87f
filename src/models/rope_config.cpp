#include "models/rope_config.h"

#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>

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
  if (attrs.attention_factor == 0 && scaling.has("mscale") && scaling.has("mscale_all_dim"))
    attrs.attention_factor = yarn_magnitude(scaling.positive("factor"), scaling.positive("mscale")) /
                             yarn_magnitude(scaling.positive("factor"), scaling.positive("mscale_all_dim"));
}

// The frequencies change with the length of a text beyond max_position_embeddings, which is the longest that a graph is
// made for; Hunyuan's models have an `alpha` that stretches them once and for all.
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
  else if (type == "yarn" && scaling.flag("truncate", true))
    read_yarn(scaling, attrs);
  else
    throw FileError(fmt::format("{}: unknown type of rotary embedding {}", scaling.origin(), type));
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

// The number of leading features of a head that are rotated, in pairs. If it is odd, one more is.
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

RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size) {
  RopeAttrs attrs;
  attrs.base = rope_base(config, parameters, attrs.base);
  const int turning = rotary_size(config, parameters, head_size), even = turning + turning % 2;
  if (even != head_size) attrs.dims = even;
  // The frequencies' exponents are fractions of the odd number.
  if (even != turning) attrs.base = std::pow(attrs.base, static_cast<double>(even) / turning);
  const std::string type = parameters.text("rope_type", parameters.text("type", "default"));
  if (type != "default" && even != turning)
    throw FileError(fmt::format("{}: an odd number of rotated features, {}, cannot be combined with rope_type {}",
                                config.origin(), turning, type));
  if (type == "dynamic")
    read_dynamic(parameters, even, attrs);
  else if (type != "default")
    read_scaling(parameters, type, config.size("max_position_embeddings", 0), attrs);
  return attrs;
}

RopeAttrs rope_attrs(const Config& config, int head_size) {
  const auto older = config.section("rope_scaling").value_or(config);
  return rope_attrs(config, config.section("rope_parameters").value_or(older), head_size);
}

}  // namespace jerboa::models
