#pragma once

#include <limits>

#include "models/decoder.h"

namespace jerboa::models {

/// How the families' Mamba-2 layers differ.
struct Mamba2Form {
  int width = 0;                 ///< of what goes in and out
  int heads = 0, head_size = 0;  ///< of what is remembered
  int groups = 1;                ///< of heads that share what addresses the memory
  int state = 0;                 ///< features of such an address
  int taps = 4;                  ///< of the convolution
  bool in_bias = false, out_bias = false, conv_bias = true;
  std::string activation = "hidden_act";  ///< the key of the convolution's activation
  double shortest_step = 0, longest_step = std::numeric_limits<double>::infinity();

  bool norm = true;               ///< an RMS norm of the results
  int norm_groups = 1;            ///< equal parts that are normalised by themselves
  bool norm_before_gate = false;  ///< instead of after it
  double eps = 1e-5;

  double in_scale = 1;                      ///< of what goes in
  std::vector<double> section_scales = {};  ///< of the projection's gate, values, keys, queries and steps; empty: none
};

/// Sizes checked against each other, and the config's limits of a step (`time_step_limit`).
void check_mamba2(const Config& config, const std::string& heads_key, const Mamba2Form& form);
void read_step_limits(const Config& config, Mamba2Form& form);
/// The size of a head that a config has under a key, which may also say "auto".
int mamba2_head_size(const Config& config, const std::string& key, int inner, int heads);

/// The module NAME.
Tensor mamba2_mixer(const Decoder& decoder, const Config& config, const Mamba2Form& form, int layer,
                    const std::string& name, const Tensor& x);

}  // namespace jerboa::models
