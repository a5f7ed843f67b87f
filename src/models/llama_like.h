#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/decoder.h"

// The architecture of Llama and its descendants: pre-norm layers of attention and a gated MLP, under RMS norms.
namespace jerboa::models {

/// Applies the norm NAME.
using Norm = std::function<Tensor(const std::string& name, const Tensor& x)>;
/// The RMS norm with the config's epsilon.
Norm llama_norm(const Decoder& decoder, const Config& config);

/// How the families' self-attention differs. There is one rope and one window per layer.
struct AttentionForm {
  int width = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool bias = false;                            ///< of q_proj, k_proj and v_proj
  bool output_bias = false;                     ///< of o_proj
  Norm head_norm = {};                          ///< of each head's queries and keys, before rope
  Norm projection_norm = {};                    ///< of all queries and all keys, before they become heads
  double clip = 0;                              ///< of queries, keys and values, to both sides, before rope; 0: none
  bool sinks = false;                           ///< a parameter `sinks` with one more logit per head
  double scale = 0;                             ///< of the scores; 0: 1 / sqrt(head_size)
  double soft_cap = 0;                          ///< of the scores; 0: none
  std::vector<std::optional<RopeAttrs>> ropes;  ///< none: the layer has no positional encoding
  std::vector<int> windows;                     ///< 0: no window
};
/// The form of Llama itself, with the config's sizes and its one rotary embedding.
AttentionForm attention_form(const Config& config);

/// The module NAME with q_proj, k_proj, v_proj and o_proj.
Tensor self_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                      const Tensor& x);
/// What follows the projections of x to q, k and v [batch, time, heads * size].
Tensor attend_and_project(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                          const Tensor& q, const Tensor& k, const Tensor& v);
/// The module NAME with gate_proj, up_proj and down_proj; the config names its activation under `key`.
Tensor gated_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x,
                 const std::string& key = "hidden_act");
/// The same with a hidden width of its own, and without biases.
Tensor gated_mlp_of(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x, int inner,
                    const std::string& key = "hidden_act");

/// What the module NAME of a layer adds to the residual stream.
using Sublayer = std::function<Tensor(int layer, const std::string& name, const Tensor& x)>;
NamedTensors llama_like(const Decoder& decoder, const Config& config, const Sublayer& attention, const Sublayer& mlp);
/// The same with self_attention and gated_mlp.
NamedTensors llama_like(const Decoder& decoder, const Config& config, const AttentionForm& form);

}  // namespace jerboa::models
