#include "models/decoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>

namespace jerboa::models {

Decoder::Decoder(const Config& config, const TextInputs& inputs)
    : inputs_(inputs), positions_(inputs.positions), deviation_(config.number("initializer_range", 0.02)) {
  const Tensor& ids = inputs.ids;
  if (ids.rank() != 2) throw UsageError(fmt::format("ids must be [batch, time], not {}", to_string(ids.shape())));
  const CacheOptions& cache = inputs.cache;
  if (cache.capacity < 0 || cache.chunk < 1)
    throw UsageError(
        fmt::format("a cache of {} positions for chunks of {} makes no sense", cache.capacity, cache.chunk));
  if (cache.capacity > 0 && !(inputs.positions && inputs.lengths))
    throw UsageError("a decoder with a cache needs positions and lengths, which say where the tokens go");
  if (cache.capacity > 0 && !ids.dim(0).is_constant())
    throw UsageError("a decoder with a cache needs a batch of a fixed size, because the cache is kept between runs");
  if (!positions_) positions_ = broadcast_to(arange(ids.dim(1)), ids.shape());
}

Tensor Decoder::weight(const std::string& name, Shape shape) const {
  Parameter parameter;
  parameter.shape = std::move(shape);
  parameter.init = Init::normal(deviation_);
  parameter.path = name;
  return Operand(parameter).tensor();
}

Tensor Decoder::vector(const std::string& name, const Dim& size, double value) const {
  Parameter parameter;
  parameter.shape = {size};
  parameter.init = Init::constant(value);
  parameter.decay = false;
  parameter.path = name;
  return Operand(parameter).tensor();
}

Tensor Decoder::linear(const std::string& name, const Tensor& x, int out, bool bias) const {
  const Tensor product = matmul(x, weight(name + ".weight", {out, x.dim(-1)}), {.transpose_b = true});
  return (bias ? product + vector(name + ".bias", out, 0) : product).named(name);
}

Tensor Decoder::linear_in_out(const std::string& name, const Tensor& x, int out) const {
  const Tensor product = matmul(x, weight(name + ".weight", {x.dim(-1), out}));
  return (product + vector(name + ".bias", out, 0)).named(name);
}

Tensor Decoder::embedding(const std::string& name, const Tensor& ids, int count, int width) const {
  return jerboa::embedding(weight(name + ".weight", {count, width}), ids).named(name);
}

Tensor Decoder::rms_norm(const std::string& name, const Tensor& x, double eps) const {
  return jerboa::rms_norm(x, vector(name + ".weight", x.dim(-1), 1), eps).named(name);
}

Tensor Decoder::layer_norm(const std::string& name, const Tensor& x, double eps) const {
  return jerboa::layer_norm(x, vector(name + ".weight", x.dim(-1), 1), vector(name + ".bias", x.dim(-1), 0), eps)
      .named(name);
}

Tensor Decoder::logits(const std::string& name, const Tensor& states, int count) const {
  const Dim time = states.dim(1);
  const Tensor x = inputs_.only_last ? slice(states, 1, time - Dim(1), time) : states;
  return matmul(x, weight(name + ".weight", {count, x.dim(-1)}), {.transpose_b = true}).named("logits");
}

Tensor Decoder::rope(const Tensor& x, const RopeAttrs& attrs) const { return jerboa::rope(x, positions_, attrs); }

Tensor Decoder::cached(const std::string& name, const Tensor& values, int capacity, bool ring) const {
  const Tensor cache = state_input(name, {values.dim(0), values.dim(1), capacity, values.dim(3)}, values.dtype());
  const Tensor next = cache_append(cache, values, positions_, ring);
  update(cache, next);
  return next;
}

Tensor Decoder::attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, int window) const {
  AttentionOptions options{.causal = true, .window = window, .lengths = inputs_.lengths};
  const CacheOptions& cache = inputs_.cache;
  if (cache.capacity == 0) return attention(q, k, v, options);
  const int reach = window + cache.chunk - 1;
  options.ring = cache.ring && window > 0 && reach < cache.capacity;
  options.positions = positions_;
  const int capacity = options.ring ? reach : cache.capacity;
  return attention(q, cached(fmt::format("cache.{}.k", layer), k, capacity, options.ring),
                   cached(fmt::format("cache.{}.v", layer), v, capacity, options.ring), options);
}

Tensor activation(const Config& config, const std::string& key, const Tensor& x) {
  const std::string name = config.text(key);
  if (name == "silu" || name == "swish") return silu(x);
  if (name == "gelu") return gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return gelu(x, GeluForm::tanh);
  if (name == "relu") return relu(x);
  throw FileError(fmt::format("{}: no activation {} is known for {}", config.origin(), name, key));
}

namespace {

double yarn_magnitude(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

void read_scaling(const Config& scaling, const std::string& type, int longest, RopeAttrs& attrs) {
  attrs.factor = scaling.number("factor");
  attrs.original_context = scaling.integer("original_max_position_embeddings", longest);
  if (type == "linear") {
    attrs.scaling = RopeScaling::linear;
  } else if (type == "llama3") {
    attrs.scaling = RopeScaling::llama3;
    attrs.low_freq_factor = scaling.number("low_freq_factor");
    attrs.high_freq_factor = scaling.number("high_freq_factor");
  } else if (type == "yarn" && scaling.flag("truncate", true)) {
    attrs.scaling = RopeScaling::yarn;
    attrs.beta_fast = scaling.number("beta_fast", attrs.beta_fast);
    attrs.beta_slow = scaling.number("beta_slow", attrs.beta_slow);
    attrs.attention_factor = scaling.number("attention_factor", 0);
    if (attrs.attention_factor == 0 && scaling.has("mscale") && scaling.has("mscale_all_dim"))
      attrs.attention_factor = yarn_magnitude(attrs.factor, scaling.number("mscale")) /
                               yarn_magnitude(attrs.factor, scaling.number("mscale_all_dim"));
  } else {
    throw FileError(fmt::format("{}: rotary embedding of the type {} is not known", scaling.origin(), type));
  }
}

}  // namespace

RopeAttrs rope_attrs(const Config& config, int head_size) {
  RopeAttrs attrs;
  const Config scaling = config.section("rope_parameters").value_or(config.section("rope_scaling").value_or(config));
  attrs.base = scaling.number("rope_theta", config.number("rope_theta", attrs.base));
  const double part = scaling.number("partial_rotary_factor", config.number("partial_rotary_factor", 1));
  if (part != 1) attrs.dims = static_cast<int>(head_size * part);
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  if (type != "default") read_scaling(scaling, type, config.integer("max_position_embeddings", 0), attrs);
  return attrs;
}

namespace {

Tensor gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const int inner = config.integer("intermediate_size");
  const bool bias = config.flag("mlp_bias", false);
  const Tensor gate = activation(config, "hidden_act", decoder.linear(name + ".gate_proj", x, inner, bias));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, bias);
  return decoder.linear(name + ".down_proj", gate * up, config.integer("hidden_size"), bias);
}

}  // namespace

Tensor llama_like_logits(const Decoder& decoder, const Config& config, const Tensor& ids,
                         const SelfAttention& attention) {
  const int vocabulary = config.integer("vocab_size");
  const double eps = config.number("rms_norm_eps", 1e-6);
  const std::string tokens = "model.embed_tokens";
  Tensor x = decoder.embedding(tokens, ids, vocabulary, config.integer("hidden_size"));
  for (int layer = 0; layer < config.integer("num_hidden_layers"); ++layer) {
    const std::string name = fmt::format("model.layers.{}", layer);
    x = x + attention(layer, name + ".self_attn", decoder.rms_norm(name + ".input_layernorm", x, eps));
    x = x + gated_mlp(decoder, config, name + ".mlp", decoder.rms_norm(name + ".post_attention_layernorm", x, eps));
  }
  const bool tied = config.flag("tie_word_embeddings", false);
  return decoder.logits(tied ? tokens : "lm_head", decoder.rms_norm("model.norm", x, eps), vocabulary);
}

}  // namespace jerboa::models
