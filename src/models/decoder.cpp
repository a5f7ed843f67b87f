#include "models/decoder.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/quantise.h>

namespace jerboa::models {

Decoder::Decoder(const Config& config, const TextInputs& inputs)
    : inputs_(inputs), positions_(inputs.positions), deviation_(config.number("initializer_range", 0.02)) {
  if (deviation_ < 0) config.fail("initializer_range", "is below zero");
  const Tensor& ids = inputs.ids;
  if (ids.rank() != 2) throw UsageError(fmt::format("ids must be [batch, time], not {}", to_string(ids.shape())));
  check_cache();
  if (!positions_) positions_ = broadcast_to(arange(ids.dim(1)), ids.shape());
}

void Decoder::check_cache() const {
  const CacheOptions& cache = inputs_.cache;
  if (cache.capacity < 0 || cache.chunk < 1)
    throw UsageError(fmt::format("a cache of {} positions is not valid for chunks of {}", cache.capacity, cache.chunk));
  if (cache.capacity == 0) return;
  if (!(inputs_.positions && inputs_.lengths))
    throw UsageError("a decoder with a cache needs positions and lengths, which say where the tokens go");
  if (cache.dtype != DType::f32 && cache.dtype != DType::f16)
    throw UsageError(fmt::format("a cache can be f32 or f16, not {}", name(cache.dtype)));
  if (cache.block < 0 || cache.blocks < 0 || (cache.block > 0 && cache.capacity % cache.block != 0))
    throw UsageError(fmt::format("a cache of {} positions per sequence cannot be made of blocks of {}", cache.capacity,
                                 cache.block));
  if (cache.block > 0 && !inputs_.table)
    throw UsageError("a decoder with a paged cache needs a table, which says where each sequence's blocks are");
  // A paged cache has a size of its own.
  if ((cache.block == 0 || cache.blocks == 0) && !inputs_.ids.dim(0).is_constant())
    throw UsageError("a decoder with a cache needs a batch of a fixed size, because the cache is kept between runs");
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

Tensor Decoder::frozen(const std::string& name, Shape shape, DType dtype) const {
  Graph& graph = current_graph("decoder");
  const TensorId known = graph.find(name);  // a tied table, used for both tokens and logits
  if (known != no_tensor) return {graph.identity(), known};
  return param_input(name, std::move(shape), {.trainable = false, .dtype = dtype});
}

Tensor Decoder::matrix(const std::string& name, Shape shape) const {
  if (inputs_.weights == DType::f32) return weight(name, std::move(shape));
  return frozen(name, std::move(shape), inputs_.weights == DType::bf16 ? DType::bf16 : DType::f16);
}

Tensor Decoder::product(const std::string& name, const Tensor& x, int out) const {
  const ModuleScope scope(name);
  const std::string weight_name = name + ".weight";
  const std::int64_t in = x.dim(-1).value();
  const bool quantised = inputs_.weights == DType::i8 || inputs_.weights == DType::i4;
  if (!quantised || in % quantised_group != 0)
    return matmul(x, cast(matrix(weight_name, {out, in}), DType::f32), {.transpose_b = true});
  const Tensor weights = frozen(weight_name + std::string(quantised_suffix), {out, in}, inputs_.weights);
  const Tensor scales = frozen(weight_name + std::string(scales_suffix), {out, in / quantised_group}, DType::f16);
  if (inputs_.weights == DType::i8) return matmul_quantised(x, weights, scales);
  // A minimum per group about halves what four bits cost in perplexity, measured on a small Llama.
  const Tensor mins = frozen(weight_name + std::string(mins_suffix), {out, in / quantised_group}, DType::f16);
  return matmul_quantised(x, weights, scales, mins);
}

Tensor Decoder::linear(const std::string& name, const Tensor& x, int out, bool bias) const {
  const Tensor result = product(name, x, out);
  return (bias ? result + vector(name + ".bias", out, 0) : result).named(name);
}

Tensor Decoder::linear_in_out(const std::string& name, const Tensor& x, int out) const {
  const ModuleScope scope(name);
  const Tensor product = matmul(x, weight(name + ".weight", {x.dim(-1), out}));
  return (product + vector(name + ".bias", out, 0)).named(name);
}

Tensor Decoder::embedding(const std::string& name, const Tensor& ids, int count, int width) const {
  const ModuleScope scope(name);
  return cast(jerboa::embedding(matrix(name + ".weight", {count, width}), ids), DType::f32).named(name);
}

Tensor Decoder::rms_norm(const std::string& name, const Tensor& x, double eps) const {
  const ModuleScope scope(name);
  return jerboa::rms_norm(x, vector(name + ".weight", x.dim(-1), 1), eps).named(name);
}

Tensor Decoder::rms_norm_around_one(const std::string& name, const Tensor& x, double eps) const {
  const ModuleScope scope(name);
  return jerboa::rms_norm(x, vector(name + ".weight", x.dim(-1), 0) + 1, eps).named(name);
}

Tensor Decoder::layer_norm(const std::string& name, const Tensor& x, double eps) const {
  const ModuleScope scope(name);
  const Tensor weight = vector(name + ".weight", x.dim(-1), 1), bias = vector(name + ".bias", x.dim(-1), 0);
  return jerboa::layer_norm(x, weight, bias, eps).named(name);
}

Tensor Decoder::logits(const std::string& name, const Tensor& states, int count) const {
  const Dim time = states.dim(1);
  const Tensor x = inputs_.only_last ? slice(states, 1, time - Dim(1), time) : states;
  return product(name, x, count).named("logits");
}

Tensor Decoder::rope(const Tensor& x, const RopeAttrs& attrs) const { return jerboa::rope(x, positions_, attrs); }

Tensor Decoder::cached(const std::string& name, const Tensor& values, int capacity, bool ring) const {
  const CacheOptions& options = inputs_.cache;
  const Tensor stored = cast(values, options.dtype);
  CacheAppendOptions append{.ring = ring};
  Shape shape{values.dim(0), values.dim(1), capacity, values.dim(3)};
  if (options.block > 0) {
    append.table = inputs_.table;
    shape[0] = options.blocks > 0 ? Dim(options.blocks) : values.dim(0) * Dim(capacity / options.block);
    shape[2] = options.block;
  }
  const Tensor cache = state_input(name, shape, options.dtype);
  const Tensor next = cache_append(cache, stored, positions_, append);
  update(cache, next);
  return next;
}

Tensor Decoder::attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreOptions& scores) const {
  AttentionOptions options{.causal = true,
                           .scale = scores.scale,
                           .window = scores.window,
                           .soft_cap = scores.soft_cap,
                           .lengths = inputs_.lengths};
  const CacheOptions& cache = inputs_.cache;
  if (cache.capacity == 0) return attention(q, k, v, options);
  const int reach = scores.window + cache.chunk - 1;
  options.ring = cache.ring && cache.block == 0 && scores.window > 0 && reach < cache.capacity;
  options.positions = positions_;
  if (cache.block > 0) options.table = inputs_.table;
  const int capacity = options.ring ? reach : cache.capacity;
  const Tensor keys = cached(fmt::format("cache.{}.k", layer), k, capacity, options.ring);
  const Tensor values = cached(fmt::format("cache.{}.v", layer), v, capacity, options.ring);
  const Tensor queries = cast(q, cache.dtype);
  return cast(attention(queries, keys, values, options), q.dtype());
}

double norm_epsilon(const Config& config, const std::string& key, double otherwise) {
  const double eps = config.positive(key, otherwise);
  if (eps >= 1) config.fail(key, "is not below 1");
  return eps;
}

Tensor activation(const Config& config, const std::string& key, const Tensor& x) {
  const std::string name = config.text(key);
  if (name == "silu" || name == "swish") return silu(x);
  if (name == "gelu") return gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return gelu(x, GeluForm::tanh);
  if (name == "relu") return relu(x);
  throw FileError(fmt::format("{}: unknown activation {} in {}", config.origin(), name, key));
}

}  // namespace jerboa::models
