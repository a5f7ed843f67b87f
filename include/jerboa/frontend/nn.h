#pragma once

#include <optional>
#include <vector>

#include <jerboa/base/fields.h>
#include <jerboa/ops/ops.h>

namespace jerboa::nn {

// Modules: plain structs that describe parameters and apply ops to them. A model is a struct of modules whose
// JERBOA_FIELDS lists them. Weights are [out, in], as in Hugging Face files.
//
// `dtype` is the type that parameters are stored in: f32, f16 or bf16. A module computes in the type of its input,
// which its parameters are cast to; only an embedding, whose input is ids, returns rows in the type of its table.

struct LinearOptions {
  bool bias = true;
  std::optional<Init> init = {};  ///< of the weight; by default uniform within 1 / sqrt(in)
  DType dtype = DType::f32;
};
struct Linear {
  Parameter weight;
  std::optional<Parameter> bias;

  Linear(int in, int out, LinearOptions options = {}, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  Tensor operator()(Operand x) const;
  JERBOA_FIELDS(weight, bias)
};

struct EmbeddingOptions {
  Init init = Init::normal(0.02);
  DType dtype = DType::f32;
};
struct Embedding {
  Parameter weight;

  Embedding(int count, int width, Init init = Init::normal(0.02), const char* file = __builtin_FILE(),
            int line = __builtin_LINE());
  Embedding(int count, int width, EmbeddingOptions options, const char* file = __builtin_FILE(),
            int line = __builtin_LINE());
  Tensor operator()(Operand ids) const;
  /// x times the transposed table: an output layer tied to the embedding.
  Tensor logits(Operand x) const;
  JERBOA_FIELDS(weight)
};

struct NormOptions {
  std::optional<double> eps = {};  ///< by default 1e-5 of LayerNorm, 1e-6 of RMSNorm
  DType dtype = DType::f32;
};
struct LayerNorm {
  Parameter weight, bias;
  double eps;

  explicit LayerNorm(int width, double eps = 1e-5, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  LayerNorm(int width, NormOptions options, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  Tensor operator()(Operand x) const;
  JERBOA_FIELDS(weight, bias)
};

struct RMSNorm {
  Parameter weight;
  double eps;

  explicit RMSNorm(int width, double eps = 1e-6, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  RMSNorm(int width, NormOptions options, const char* file = __builtin_FILE(), int line = __builtin_LINE());
  Tensor operator()(Operand x) const;
  JERBOA_FIELDS(weight)
};

/// In a training graph, zeroes each element with probability `rate` and scales up the others to keep the mean;
/// otherwise the identity.
struct Dropout {
  double rate = 0.1;

  Tensor operator()(Operand x) const;
  JERBOA_FIELDS()
};

struct ConvOptions {
  int stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  DType dtype = DType::f32;
};
struct Conv1d {
  Parameter weight;
  std::optional<Parameter> bias;
  Conv1dAttrs attrs;

  Conv1d(int in, int out, int kernel, ConvOptions options = {}, const char* file = __builtin_FILE(),
         int line = __builtin_LINE());
  Tensor operator()(Operand x) const;
  JERBOA_FIELDS(weight, bias)
};
struct Conv2d {
  Parameter weight;
  std::optional<Parameter> bias;
  Conv2dAttrs attrs;

  Conv2d(int in, int out, int kernel, ConvOptions options = {}, const char* file = __builtin_FILE(),
         int line = __builtin_LINE());
  Tensor operator()(Operand x) const;
  JERBOA_FIELDS(weight, bias)
};

/// A vector of copies of a module: nn::stack<Block>(layers, {.width = width})
template <class Module>
std::vector<Module> stack(int count, const Module& module) {
  return std::vector<Module>(static_cast<std::size_t>(count), module);
}

using jerboa::merge_heads;
using jerboa::split_heads;
/// An alias of merge_heads.
inline Tensor unsplit_heads(Operand x) { return merge_heads(x); }

}  // namespace jerboa::nn
