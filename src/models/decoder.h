#pragma once

#include <string>

#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

namespace jerboa::models {

/// How queries attend to keys.
struct ScoreOptions {
  int window = 0;       ///< positions a query sees, ending with its own; 0: all
  double scale = 0;     ///< of the scores; 0: 1 / sqrt(size of a head)
  double soft_cap = 0;  ///< of the scores; 0: none
};

/// The building blocks of the families' graphs, and the state that one graph's layers share. A name is that of a module
/// in the checkpoint, whose parameters are NAME.weight and NAME.bias.
class Decoder {
 public:
  /// Throws UsageError for inconsistent inputs.
  Decoder(const Config& config, const TextInputs& inputs);

  /// x times the transpose of a weight [out, in].
  Tensor linear(const std::string& name, const Tensor& x, int out, bool bias) const;
  /// The same for a weight [in, out], as GPT-2's files hold it.
  Tensor linear_in_out(const std::string& name, const Tensor& x, int out) const;
  Tensor embedding(const std::string& name, const Tensor& ids, int count, int width) const;
  Tensor rms_norm(const std::string& name, const Tensor& x, double eps) const;
  /// The same for a weight that files store minus 1, as Gemma's do.
  Tensor rms_norm_around_one(const std::string& name, const Tensor& x, double eps) const;
  Tensor layer_norm(const std::string& name, const Tensor& x, double eps) const;
  /// Logits from a table [count, width], at every position or only at the last.
  Tensor logits(const std::string& name, const Tensor& states, int count) const;

  /// i32[batch, time]
  Tensor positions() const { return positions_; }
  Tensor rope(const Tensor& x, const RopeAttrs& attrs) const;
  /// Causal attention of [batch, heads, time, size], through the layer's cache if there is one.
  Tensor attend(int layer, const Tensor& q, const Tensor& k, const Tensor& v, const ScoreOptions& scores = {}) const;
  /// A parameter with exactly this name, in f32.
  Tensor weight(const std::string& name, Shape shape) const;

 private:
  Tensor vector(const std::string& name, const Dim& size, double value) const;
  /// A parameter that is not trained.
  Tensor frozen(const std::string& name, Shape shape, DType dtype) const;
  /// A matrix of this name in f32 or 16 bits.
  Tensor matrix(const std::string& name, Shape shape) const;
  /// x times the transpose of the matrix NAME.weight [out, in], whatever type it is stored in.
  Tensor product(const std::string& name, const Tensor& x, int out) const;
  /// A layer's cache with the new keys or values appended, recorded as the state's next version.
  Tensor cached(const std::string& name, const Tensor& values, int capacity, bool ring) const;

  void check_cache() const;

  const SiteScope scope_{CallSite{}};  // errors must not name lines of this library
  const TextInputs& inputs_;
  Tensor positions_;
  double deviation_;  // of initial weights
};

/// A norm's epsilon: above 0 and below 1.
double norm_epsilon(const Config& config, const std::string& key, double otherwise);

/// Any activation that Hugging Face configs name; throws FileError for others.
Tensor activation(const Config& config, const std::string& key, const Tensor& x);

// One function per family, each in the file of its name.
Tensor gemma2_logits(const Config& config, const TextInputs& inputs);
Tensor gemma3_logits(const Config& config, const TextInputs& inputs);
Tensor gpt2_logits(const Config& config, const TextInputs& inputs);
Tensor llama_logits(const Config& config, const TextInputs& inputs);
Tensor mistral_logits(const Config& config, const TextInputs& inputs);
Tensor phi3_logits(const Config& config, const TextInputs& inputs);
Tensor qwen2_logits(const Config& config, const TextInputs& inputs);
Tensor qwen3_logits(const Config& config, const TextInputs& inputs);
Tensor qwen3_moe_logits(const Config& config, const TextInputs& inputs);
Tensor smollm3_logits(const Config& config, const TextInputs& inputs);

}  // namespace jerboa::models
