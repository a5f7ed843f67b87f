#include "models/decoder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {
namespace {

// Refuses settings that transformers allows for any model, but that would make it something other than a decoder.
void want_plain_decoder(const Config& config) {
  for (const char* key : {"add_cross_attention", "is_encoder_decoder"})
    if (config.flag(key, false)) config.fail(key, "is not supported: the model is used only as a decoder");
  if (!config.flag("is_causal", true)) config.fail("is_causal", "is not supported: the model would not be a decoder");
}

}  // namespace

Decoder::Decoder(const Config& config, const GraphInputs& inputs)
    : Modules(config, inputs.weights, inputs.products),
      ids_(inputs.find("ids")),
      positions_(inputs.find("positions")),
      lengths_(inputs.find("lengths")),
      caches_(inputs),
      cache_type_(inputs.cache.dtype),
      last_(inputs.last) {
  want_plain_decoder(config);
  if (!ids_ || ids_.rank() != 2)
    throw UsageError(fmt::format("ids must be [batch, time], not {}", ids_ ? to_string(ids_.shape()) : "missing"));
  if (!positions_) positions_ = broadcast_to(arange(ids_.dim(1)), ids_.shape());
}

Tensor Decoder::rope(const Tensor& x, const RopeAttrs& attrs) const { return jerboa::rope(x, positions_, attrs); }

Tensor Decoder::rope(const Tensor& x, const RopeTable& table) const {
  const auto half = static_cast<std::int64_t>(table.frequencies.size());
  const std::vector<float> narrow(table.frequencies.begin(), table.frequencies.end());
  const Tensor frequencies = constant(HostTensor({half}, std::span<const float>(narrow)));
  const Tensor positions = reshape(positions_, {positions_.dim(0), 1, positions_.dim(1), 1});
  const Tensor angles = cast(positions, DType::f32) * frequencies;
  const Tensor cosines = cos(angles) * table.magnitude;
  const Tensor sines = sin(angles) * table.magnitude;
  const Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, 2 * half);
  const Tensor straight_first = first * cosines, crossed_first = second * sines;
  const Tensor straight_second = second * cosines, crossed_second = first * sines;
  const Tensor turned_first = straight_first - crossed_first;
  const Tensor turned_second = straight_second + crossed_second;
  std::vector<Operand> parts{turned_first, turned_second};
  if (x.dim(3).value() > 2 * half) parts.emplace_back(slice(x, 3, 2 * half, x.dim(3)));
  return concat(parts, 3);
}

AttentionOptions Decoder::attention_options(const ScoreOptions& scores) const {
  AttentionOptions options{.causal = true,
                           .scale = scores.scale,
                           .window = scores.window,
                           .soft_cap = scores.soft_cap,
                           .sinks = scores.sinks,
                           .lengths = lengths_};
  if (!caches_.any()) return options;
  options.positions = positions_;
  options.table = caches_.table();
  if (options.sinks && cache_type_ != DType::i8) options.sinks = cast(options.sinks, cache_type_);
  return options;
}

Caches::KeysAndValues Decoder::remember(int layer, const Tensor& k, const Tensor& v, int window) const {
  return caches_.any() ? caches_.append(layer, k, v, window) : Caches::KeysAndValues{.keys = k, .values = v};
}

Tensor Decoder::attend_to(const Caches::KeysAndValues& seen, const Tensor& q, const ScoreOptions& scores) const {
  AttentionOptions options = attention_options(scores);
  options.ring = seen.ring;
  options.table = seen.table;
  if (!caches_.any()) return attention(q, seen.keys, seen.values, options);
  // int8 caches are read with queries in their own type.
  const Tensor queries = cache_type_ == DType::i8 ? q : cast(q, cache_type_);
  return cast(attention(queries, seen.keys, seen.values, options), q.dtype());
}

Tensor Decoder::attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreOptions& scores) const {
  return attend_to(remember(layer, k, v, scores.window), q, scores);
}

Tensor Decoder::attend_latent(int layer, const Tensor& q, const Tensor& latent, const ScoreOptions& scores) const {
  const Tensor cached = caches_.append_latent(layer, latent);
  const Tensor queries = cast(q, cached.dtype());
  return cast(attention(queries, cached, cached, attention_options(scores)), q.dtype());
}

Tensor Decoder::logits(const std::string& name, const Tensor& hidden, int count) const {
  const Dim time = hidden.dim(1);
  const Tensor x = last_ > 0 ? slice(hidden, 1, time - Dim(last_), time) : hidden;
  return table_product(name, x, count).named("logits");
}

NamedTensors Decoder::results(const std::string& table, const Tensor& hidden, int count) const {
  return {{"hidden", hidden}, {"logits", logits(table, hidden, count)}};
}

}  // namespace jerboa::models
