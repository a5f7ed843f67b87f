#include "models/long_rope.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "models/rope_config.h"

namespace jerboa::models {
namespace {

// The frequencies of the plain embedding, each divided by a factor from the list.
RopeTable stretched(const Config& parameters, const std::string& key, RopeTable table) {
  const std::vector<double> factors = parameters.numbers(key);
  if (factors.size() != table.frequencies.size())
    parameters.fail(key, fmt::format("has {} factors for {} rotated pairs", factors.size(), table.frequencies.size()));
  if (!std::all_of(factors.begin(), factors.end(), [](double factor) { return factor > 0 && std::isfinite(factor); }))
    parameters.fail(key, "has a factor that is not above zero");
  for (std::size_t pair = 0; pair < factors.size(); ++pair) table.frequencies[pair] /= factors[pair];
  return table;
}

double magnitude(const Config& config, const Config& parameters, int original) {
  if (parameters.has("attention_factor")) return parameters.positive("attention_factor");
  const double factor =
      parameters.has("factor") ? parameters.positive("factor") : config.positive("max_position_embeddings") / original;
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

}  // namespace

std::optional<LongRope> long_rope(const Config& config, int head_size) {
  const auto older = config.section("rope_scaling");
  const auto parameters = config.has("rope_parameters") ? config.section("rope_parameters") : older;
  if (!parameters || !(parameters->has("long_factor") || parameters->has("short_factor"))) return std::nullopt;
  const std::string key = "original_max_position_embeddings";
  const int original =
      config.has(key) ? config.size(key) : parameters->size(key, config.size("max_position_embeddings"));
  if (original < 2) (config.has(key) ? config : *parameters).fail(key, "is not above 1");
  RopeTable plain = rope_table(unscaled_rope(config, *parameters, head_size), head_size);
  plain.magnitude = magnitude(config, *parameters, original);
  return LongRope{stretched(*parameters, "short_factor", plain), stretched(*parameters, "long_factor", plain),
                  original};
}

Tensor rotated(const Decoder& decoder, const LongRope& rope, const Tensor& heads) {
  if (decoder.caches().any())
    return decoder.rope(heads, decoder.caches().context() > rope.original_context ? rope.beyond : rope.within);
  const Tensor within = decoder.rope(heads, rope.within);
  const Tensor beyond = decoder.rope(heads, rope.beyond);
  return where(greater_equal(max(decoder.positions()), rope.original_context), beyond, within);
}

}  // namespace jerboa::models
