#pragma once

#include <string>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

/// The modules with weights that graphs are made of. A name is that of a module in the checkpoint, whose parameters are
/// NAME.weight and NAME.bias. Every product with a weight goes through these functions, which alone know how weights
/// are stored.
///
/// With int8 or int4 weights, every matrix whose rows consist of whole groups of 32 has that type, with these
/// exceptions:
/// - Tables of embeddings and logits are int8 in either case: their errors reach every layer or every logit.
/// - Weights that decide rather than compute, such as those of routers, stay f32, and so do the parameters of recurrent
///   layers and short convolutions, whose errors accumulate from token to token; all of these are small.
/// - Norms, biases and everything else that is not a matrix are f32.
/// - Matrices that are multiplied with each other before they are applied to activations are f16 (`unquantised`).
class Modules {
 public:
  /// `products`: see GraphInputs.
  Modules(const Config& config, DType weights, NamedTensors* products = nullptr);

  /// x times the transpose of a weight [out, in].
  Tensor linear(const std::string& name, const Tensor& x, int out, bool bias) const;
  /// The same for a weight [in, out], as GPT-2's files hold it.
  Tensor linear_in_out(const std::string& name, const Tensor& x, int out) const;
  /// The same as linear for a weight that is small and sensitive, such as a router's: it is f32, whatever the type of
  /// the others.
  Tensor linear_f32(const std::string& name, const Tensor& x, int out, bool bias) const;
  /// Rows sorted by expert, times the transpose of their expert's weight in NAME [count, out, in], which is the exact
  /// name of the parameter. The rows of expert e end at offsets[e].
  Tensor expert_linear(const std::string& name, const Tensor& rows, const Tensor& offsets, int count, int out) const;
  /// The same for weights [count, in, out].
  Tensor expert_linear_in_out(const std::string& name, const Tensor& rows, const Tensor& offsets, int count,
                              int out) const;
  /// Rows of a table.
  Tensor embedding(const std::string& name, const Tensor& ids, int count, int width) const;
  Tensor rms_norm(const std::string& name, const Tensor& x, double eps) const;
  /// The same for a weight that files store minus 1, as Gemma's do.
  Tensor rms_norm_around_one(const std::string& name, const Tensor& x, double eps) const;
  /// With a weight and, unless told otherwise, a bias.
  Tensor layer_norm(const std::string& name, const Tensor& x, double eps, bool bias = true) const;

  /// The matrix NAME.weight for products that `linear` does not cover: in f16 where other weights are quantised, and
  /// read as f32.
  Tensor unquantised(const std::string& name, Shape shape) const;
  /// A parameter with exactly this name, in f32.
  Tensor weight(const std::string& name, Shape shape) const;
  /// The same for one value per feature, which is initialised to `value` and does not decay.
  Tensor vector(const std::string& name, Shape shape, double value) const;

 protected:
  /// x times the transpose of a table NAME.weight [count, width], which `embedding` may share.
  Tensor table_product(const std::string& name, const Tensor& x, int count) const;

 private:
  bool quantises(std::int64_t in) const;
  /// A parameter that is not trained.
  Tensor frozen(const std::string& name, Shape shape, DType dtype) const;
  /// A matrix of this name in f32 or 16 bits.
  Tensor matrix(const std::string& name, Shape shape) const;
  /// The operands of ops on quantised weights.
  struct QuantisedMatrix {
    Tensor weight, scales;
    Operand mins;
  };
  /// A weight […, in] of this name in int8 or int4.
  QuantisedMatrix quantised(const std::string& weight_name, Shape shape, DType dtype) const;
  /// x times the transpose of the matrix NAME.weight [out, in]; if weights are quantised, this one has the given type.
  Tensor product(const std::string& name, const Tensor& x, int out, DType quantised_type) const;

  const SiteScope scope_{CallSite{}};  // errors must not point at lines of this library
  DType weights_;
  NamedTensors* products_;
  double deviation_;  // of initial weights
};

/// A norm's epsilon: above 0 and below 1.
double norm_epsilon(const Config& config, const std::string& key, double otherwise);

/// Any activation that Hugging Face configs name; throws FileError for others.
Tensor activation(const Config& config, const std::string& key, const Tensor& x);

}  // namespace jerboa::models
