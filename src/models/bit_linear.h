#pragma once

#include <string>
#include <vector>

#include "models/decoder.h"

namespace jerboa::models {

/// BitNet's products: 8-bit activations, with a scale per token, times weights of -1, 0 and 1 with one scale, as
/// `quantization_config` says; plain products if the config has none. Rounding passes gradients through unchanged.
class BitLinear {
 public:
  /// Throws FileError for unknown settings.
  BitLinear(const Decoder& decoder, const Config& config);

  /// x times the transpose of NAME.weight [out, in].
  Tensor operator()(const std::string& name, const Tensor& x, int out, bool bias) const;

 private:
  enum class Mode {
    plain,
    online,      // the file has wide weights, which the graph rounds
    multiplied,  // the file has rounded weights and NAME.weight_scale
    divided      // the same with the reciprocal of the scale
  };
  static Mode mode_of(const Config& config);
  bool converts(const std::string& name) const;
  Tensor product(const std::string& name, const Tensor& x, int out) const;

  const Decoder& decoder_;
  Mode mode_;
  std::vector<std::string> kept_;  // parts of the names of modules that stay unquantised
  double input_norm_eps_ = 0;      // of a norm NAME.rms_norm before the rounding; 0: none
};

/// Each row rounded to 8 bits.
Tensor round_activations(const Tensor& x);
/// A matrix rounded to -1, 0 and 1 times the mean of its absolute values.
Tensor round_weights(const Tensor& weights);

}  // namespace jerboa::models
