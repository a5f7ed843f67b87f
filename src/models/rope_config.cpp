#include "models/rope_config.h"

#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {
namespace {

void read_llama3(const Config& scaling, RopeAttrs& attrs) {
  attrs.scaling = RopeScaling::llama3;
  attrs.low_freq_factor = scaling.number("low_freq_factor");
  attrs.high_freq_factor = scaling.number("high_freq_factor");
}

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_yarn(const Config& scaling, RopeAttrs& attrs) {
  attrs.scaling = RopeScaling::yarn;
  attrs.beta_fast = scaling.number("beta_fast", attrs.beta_fast);
  attrs.beta_slow = scaling.number("beta_slow", attrs.beta_slow);
  attrs.attention_factor = scaling.number("attention_factor", 0);
  if (attrs.attention_factor == 0 && scaling.has("mscale") && scaling.has("mscale_all_dim"))
    attrs.attention_factor = yarn_magnitude(scaling.number("factor"), scaling.number("mscale")) /
                             yarn_magnitude(scaling.number("factor"), scaling.number("mscale_all_dim"));
}

void read_scaling(const Config& scaling, const std::string& type, int longest, RopeAttrs& attrs) {
  if (type == "linear")
    attrs.scaling = RopeScaling::linear;
  else if (type == "llama3")
    read_llama3(scaling, attrs);
  else if (type == "yarn" && scaling.flag("truncate", true))
    read_yarn(scaling, attrs);
  else
    throw FileError(fmt::format("{}: rotary embedding of the type {} is not known", scaling.origin(), type));
  attrs.factor = scaling.number("factor");
  attrs.original_context = scaling.integer("original_max_position_embeddings", longest);
}

}  // namespace

RopeAttrs rope_attrs(const Config& config, const Config& parameters, int head_size) {
  RopeAttrs attrs;
  attrs.base = parameters.number("rope_theta", config.number("rope_theta", attrs.base));
  const double part = parameters.number("partial_rotary_factor", config.number("partial_rotary_factor", 1));
  if (part != 1) attrs.dims = static_cast<int>(head_size * part);
  const std::string type = parameters.text("rope_type", parameters.text("type", "default"));
  if (type != "default") read_scaling(parameters, type, config.integer("max_position_embeddings", 0), attrs);
  return attrs;
}

RopeAttrs rope_attrs(const Config& config, int head_size) {
  const auto older = config.section("rope_scaling").value_or(config);
  return rope_attrs(config, config.section("rope_parameters").value_or(older), head_size);
}

}  // namespace jerboa::models
