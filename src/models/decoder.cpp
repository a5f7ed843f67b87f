#include "models/decoder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {

Decoder::Decoder(const Config& config, const GraphInputs& inputs)
    : Modules(config, inputs.weights),
      ids_(inputs.find("ids")),
      positions_(inputs.find("positions")),
      lengths_(inputs.find("lengths")),
      caches_(inputs),
      cache_type_(inputs.cache.dtype),
      last_(inputs.last) {
  if (!ids_ || ids_.rank() != 2)
    throw UsageError(fmt::format("ids must be [batch, time], not {}", ids_ ? to_string(ids_.shape()) : "missing"));
  if (!positions_) positions_ = broadcast_to(arange(ids_.dim(1)), ids_.shape());
}

Tensor Decoder::rope(const Tensor& x, const RopeAttrs& attrs) const { return jerboa::rope(x, positions_, attrs); }

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
  return options;
}

Tensor Decoder::attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreOptions& scores) const {
  AttentionOptions options = attention_options(scores);
  if (!caches_.any()) return attention(q, k, v, options);
  const auto cached = caches_.append(layer, k, v, scores.window);
  options.ring = cached.ring;
  const Tensor queries = cast(q, cache_type_);
  return cast(attention(queries, cached.keys, cached.values, options), q.dtype());
}

Tensor Decoder::attend_latent(int layer, const Tensor& q, const Tensor& latent, const ScoreOptions& scores) const {
  const Tensor cached = caches_.append_latent(layer, latent);
  const Tensor queries = cast(q, cache_type_);
  return cast(attention(queries, cached, cached, attention_options(scores)), q.dtype());
}

Tensor Decoder::logits(const std::string& name, const Tensor& hidden, int count) const {
  const Dim time = hidden.dim(1);
  const Tensor x = last_ > 0 ? slice(hidden, 1, time - Dim(last_), time) : hidden;
  return product(name, x, count).named("logits");
}

NamedTensors Decoder::results(const std::string& table, const Tensor& hidden, int count) const {
  return {{"hidden", hidden}, {"logits", logits(table, hidden, count)}};
}

}  // namespace jerboa::models
