#pragma once

#include <limits>

#include "models/decoder.h"

namespace jerboa::models {

/// How the families' Mamba-2 layers differ.
struct Mamba2Form {
  int width = 0;                 ///< of input and output
  int heads = 0, head_size = 0;  ///< of the values
  int groups = 1;                ///< of heads that share keys and queries
  int state = 0;                 ///< features of a key or query
  int taps = 4;                  ///< of the convolution
  bool in_bias = false, out_bias = false, conv_bias = true;
  std::string activation = "hidden_act";  ///< the key of the convolution's activation
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();

  bool norm = true;               ///< an RMS norm of the results
  int norm_groups = 1;            ///< equal parts that are normalised separately
  bool norm_before_gate = false;  ///< instead of after it
  double eps = 1e-5;

  double in_scale = 1;                      ///< of the input
  std::vector<double> section_scales = {};  ///< of the projected gate, values, keys, queries and steps; empty: none
};

/// Checks the sizes against each other; read_step_limits reads the config's `time_step_limit`.
void check_mamba2(const Config& config, const std::string& heads_key, const Mamba2Form& form);
void read_step_limits(const Config& config, Mamba2Form& form);
/// The head size that the config has under `key`, where "auto" stands for inner / heads.
int mamba2_head_size(const Config& config, const std::string& key, int inner, int heads);

/// The output of the module NAME.
Tensor mamba2_mixer(const Decoder& decoder, const Config& config, const Mamba2Form& form, int layer,
                    const std::string& name, const Tensor& x);

}  // namespace jerboa::models
