#include "models/modules.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/quantise.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

// The type of embedding tables in quantised models.
constexpr DType table_type = DType::i8;

}  // namespace

Modules::Modules(const Config& config, DType weights, NamedTensors* products)
    : weights_(weights), products_(products), deviation_(config.number("initializer_range", 0.02)) {
  if (deviation_ < 0) config.fail("initializer_range", "is below zero");
}

Tensor Modules::weight(const std::string& name, Shape shape) const {
  Parameter parameter;
  parameter.shape = std::move(shape);
  parameter.init = Init::normal(deviation_);
  parameter.path = name;
  return Operand(parameter).tensor();
}

Tensor Modules::vector(const std::string& name, Shape shape, double value) const {
  Parameter parameter;
  parameter.shape = std::move(shape);
  parameter.init = Init::constant(value);
  parameter.decay = false;
  parameter.path = name;
  return Operand(parameter).tensor();
}

Tensor Modules::frozen(const std::string& name, Shape shape, DType dtype) const {
  Graph& graph = current_graph("model");
  const TensorId known = graph.find(name);  // a tied table serves both embedding and logits
  if (known != no_tensor) return {graph.identity(), known};
  return param_input(name, std::move(shape), {.trainable = false, .dtype = dtype});
}

Tensor Modules::matrix(const std::string& name, Shape shape) const {
  if (weights_ == DType::f32) return weight(name, std::move(shape));
  return frozen(name, std::move(shape), weights_ == DType::bf16 ? DType::bf16 : DType::f16);
}

Tensor Modules::unquantised(const std::string& name, Shape shape) const {
  return cast(matrix(name + ".weight", std::move(shape)), DType::f32);
}

// A row must consist of whole groups.
bool Modules::quantises(std::int64_t in) const {
  return (weights_ == DType::i8 || weights_ == DType::i4) && in % quantised_group == 0;
}

Modules::QuantisedMatrix Modules::quantised(const std::string& weight_name, Shape shape, DType dtype) const {
  Shape groups = shape;
  groups.back() = groups.back().value() / quantised_group;
  QuantisedMatrix result;
  result.weight = frozen(weight_name + std::string(quantised_suffix), std::move(shape), dtype);
  result.scales = frozen(weight_name + std::string(scales_suffix), groups, DType::f16);
  // A minimum per group about halves what four bits cost in perplexity, measured on a small Llama.
  if (dtype == DType::i4) result.mins = frozen(weight_name + std::string(mins_suffix), groups, DType::f16);
  return result;
}

Tensor Modules::product(const std::string& name, const Tensor& x, int out, DType quantised_type) const {
  const ModuleScope scope(name);
  const std::string weight_name = name + ".weight";
  const std::int64_t in = x.dim(-1).value();
  if (!quantises(in)) return matmul(x, cast(matrix(weight_name, {out, in}), DType::f32), {.transpose_b = true});
  const QuantisedMatrix matrix = quantised(weight_name, {out, in}, quantised_type);
  return matmul_quantised(x, matrix.weight, matrix.scales, matrix.mins);
}

Tensor Modules::table_product(const std::string& name, const Tensor& x, int count) const {
  return product(name, x, count, table_type);
}

Tensor Modules::linear(const std::string& name, const Tensor& x, int out, bool bias) const {
  if (products_ != nullptr) products_->emplace(name + ".weight", x);
  const Tensor result = product(name, x, out, weights_);
  return (bias ? result + vector(name + ".bias", {out}, 0) : result).named(name);
}

Tensor Modules::linear_in_out(const std::string& name, const Tensor& x, int out) const {
  const ModuleScope scope(name);
  if (products_ != nullptr) products_->emplace(name + ".weight", x);
  const std::int64_t in = x.dim(-1).value();
  const Tensor result = quantises(in) ? product(name, x, out, weights_)
                                      : matmul(x, cast(matrix(name + ".weight", {in, out}), DType::f32));
  return (result + vector(name + ".bias", {out}, 0)).named(name);
}

Tensor Modules::linear_f32(const std::string& name, const Tensor& x, int out, bool bias) const {
  const ModuleScope scope(name);
  const Tensor result = matmul(x, weight(name + ".weight", {out, x.dim(-1)}), {.transpose_b = true});
  return (bias ? result + vector(name + ".bias", {out}, 0) : result).named(name);
}

Tensor Modules::expert_linear(const std::string& name, const Tensor& rows, const Tensor& offsets, int count,
                              int out) const {
  const ModuleScope scope(name);
  const std::int64_t in = rows.dim(-1).value();
  if (!quantises(in))
    return matmul_grouped(rows, cast(matrix(name, {count, out, in}), DType::f32), offsets, {.transpose_b = true});
  const QuantisedMatrix matrices = quantised(name, {count, out, in}, weights_);
  return matmul_grouped_quantised(rows, matrices.weight, matrices.scales, matrices.mins, offsets);
}

Tensor Modules::expert_linear_in_out(const std::string& name, const Tensor& rows, const Tensor& offsets, int count,
                                     int out) const {
  if (quantises(rows.dim(-1).value())) return expert_linear(name, rows, offsets, count, out);
  const ModuleScope scope(name);
  return matmul_grouped(rows, cast(matrix(name, {count, rows.dim(-1), out}), DType::f32), offsets);
}

Tensor Modules::embedding(const std::string& name, const Tensor& ids, int count, int width) const {
  const ModuleScope scope(name);
  const std::string weight_name = name + ".weight";
  Tensor rows;
  if (quantises(width)) {
    const QuantisedMatrix table = quantised(weight_name, {count, width}, table_type);
    rows = embedding_quantised(table.weight, table.scales, table.mins, ids);
  } else {
    rows = jerboa::embedding(matrix(weight_name, {count, width}), ids);
  }
  return cast(rows, DType::f32).named(name);
}

Tensor Modules::rms_norm(const std::string& name, const Tensor& x, double eps) const {
  const ModuleScope scope(name);
  return jerboa::rms_norm(x, vector(name + ".weight", {x.dim(-1)}, 1), eps).named(name);
}

Tensor Modules::rms_norm_around_one(const std::string& name, const Tensor& x, double eps) const {
  const ModuleScope scope(name);
  return jerboa::rms_norm(x, vector(name + ".weight", {x.dim(-1)}, 0) + 1, eps).named(name);
}

Tensor Modules::layer_norm(const std::string& name, const Tensor& x, double eps, bool bias) const {
  const ModuleScope scope(name);
  const Tensor weight = vector(name + ".weight", {x.dim(-1)}, 1);
  const Tensor offset = bias ? vector(name + ".bias", {x.dim(-1)}, 0) : zeros({x.dim(-1)});
  return jerboa::layer_norm(x, weight, offset, eps).named(name);
}

double norm_epsilon(const Config& config, const std::string& key, double otherwise) {
  const double eps = config.positive(key, otherwise);
  if (eps >= 1) config.fail(key, "is not below 1");
  return eps;
}

Tensor activation(const Config& config, const std::string& key, const Tensor& x) {
  const std::string name = config.text(key);
  if (name == "silu" || name == "swish") return silu(x);
  if (name == "gelu" || name == "gelu_python") return gelu(x);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" || name == "gelu_fast" ||
      name == "gelu_accurate")
    return gelu(x, GeluForm::tanh);
  if (name == "quick_gelu") return x * sigmoid(x * 1.702);
  if (name == "gelu_10") return clamp(gelu(x), -10, 10);
  if (name == "relu") return relu(x);
  if (name == "relu6") return clamp(x, 0, 6);
  if (name == "leaky_relu") return maximum(x, x * 0.01);
  if (name == "tanh") return tanh(x);
  if (name == "sigmoid") return sigmoid(x);
  if (name == "linear") return x;
  if (name == "mish") return x * tanh(softplus(x));
  if (name == "relu2") {
    const Tensor positive = relu(x);
    return positive * positive;
  }
  throw FileError(fmt::format("{}: unknown activation {} in {}", config.origin(), in_quotes(name), key));
}

}  // namespace jerboa::models
