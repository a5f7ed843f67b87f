#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/decoder.h"
#include "models/long_rope.h"
#include "models/mlp.h"

// The architecture of Llama and its descendants: layers of attention and an MLP, which differ in their norms, in how
// the two sublayers are joined and in a few multipliers.
namespace jerboa::models {

/// Applies the norm NAME.
using Norm = std::function<Tensor(const std::string& name, const Tensor& x)>;
/// The RMS norm with the config's epsilon.
Norm llama_norm(const Decoder& decoder, const Config& config);
/// The layer norm with the epsilon that the config has under `key`.
Norm centred_norm(const Decoder& decoder, const Config& config, const std::string& key, bool bias = true);

/// How the families' self-attention differs. There is one rope and one window per layer.
struct AttentionForm {
  int width = 0, heads = 0, kv_heads = 0, head_size = 0;
  bool bias = false;                                       ///< of q_proj, k_proj and v_proj
  bool output_bias = false;                                ///< of the output's projection
  std::string output = "o_proj";                           ///< the name of that projection
  Norm projection_norm = {};                               ///< of all queries and all keys, before they become heads
  Norm head_norm = {};                                     ///< of each head's queries and keys, before rope
  bool norm_after_rope = false;                            ///< the head norm comes after rope
  std::string query_norm = "q_norm", key_norm = "k_norm";  ///< the names of either kind of norm
  double clip = 0;                              ///< largest magnitude of queries, keys and values, before rope; 0: any
  bool sinks = false;                           ///< a parameter `sinks`: one extra logit per head
  Tensor query_scale = {};                      ///< of queries after rope, [batch, 1, time, 1]; empty: none
  double scale = 0;                             ///< of the scores; 0: 1 / sqrt(head_size)
  double soft_cap = 0;                          ///< of the scores; 0: none
  std::vector<std::optional<RopeAttrs>> ropes;  ///< none: the layer has no positional encoding
  std::optional<RopeTable> rope_table = {};     ///< in place of `ropes`, in every layer
  std::optional<LongRope> long_rope = {};       ///< in layers with a rope, in place of it
  std::vector<int> windows;                     ///< 0: no window
};
/// The form of Llama itself, with the config's sizes and its one rotary embedding.
AttentionForm attention_form(const Config& config);
/// The same without a rotary embedding.
AttentionForm attention_sizes(const Config& config);
/// Rotates neighbours together, as GPT-J does, in every layer. Throws FileError if the config asks for LongRoPE too.
void interleave_ropes(const Config& config, AttentionForm& form);
/// Throws FileError for LongRoPE, in families that build their rotary embedding themselves.
void refuse_long_rope(const Config& config, const AttentionForm& form);

/// The module NAME with q_proj, k_proj, v_proj and the output's projection.
Tensor self_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                      const Tensor& x);
/// Attention after the projections of x to q, k and v [batch, time, heads * size].
Tensor attend_and_project(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                          const Tensor& q, const Tensor& k, const Tensor& v);
/// The same without the output's projection: [batch, time, heads * size].
Tensor attend_heads(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                    const Tensor& q, const Tensor& k, const Tensor& v);

/// A decoder around its sublayers: embedding, norms, residuals and head. Names are those of modules; an empty one means
/// that there is none.
struct StackForm {
  int vocabulary = 0, width = 0, layers = 0;
  std::string tokens = "model.embed_tokens", prefix = "model.layers.", final_norm = "model.norm", head = "lm_head";
  bool tied = false;       ///< the head is the token table
  bool head_bias = false;  ///< HEAD.bias, even if the head is tied
  std::string attention = "self_attn", mlp = "mlp";
  Norm norm;
  std::string embedding_norm = {};
  std::string before_attention = "input_layernorm", after_attention = {};
  std::string before_mlp = "post_attention_layernorm", after_mlp = {};
  /// Both sublayers read the layer's input; the MLP shares attention's norm if it has none of its own.
  bool parallel = false;
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  double logit_cap = 0;  ///< 0: none
};
/// The form of Llama itself, with the config's sizes.
StackForm stack_form(const Decoder& decoder, const Config& config);
/// The same with norms after both sublayers and none before.
StackForm post_norm_stack(const Decoder& decoder, const Config& config);

/// The output of a layer's module NAME, which is added to the residual stream.
using Sublayer = std::function<Tensor(int layer, const std::string& name, const Tensor& x)>;
/// A decoder whose layers have two sublayers, or the first alone if `mlp` is empty.
NamedTensors decoder_stack(const Decoder& decoder, const StackForm& form, const Sublayer& attention,
                           const Sublayer& mlp);
/// The same with self_attention.
NamedTensors decoder_stack(const Decoder& decoder, const StackForm& form, const AttentionForm& attention,
                           const Sublayer& mlp);
/// The same with self_attention and gated_mlp.
NamedTensors decoder_stack(const Decoder& decoder, const Config& config, const StackForm& form,
                           const AttentionForm& attention);

/// A stack in the form of Llama.
NamedTensors llama_like(const Decoder& decoder, const Config& config, const Sublayer& attention, const Sublayer& mlp);
NamedTensors llama_like(const Decoder& decoder, const Config& config, const AttentionForm& form);

}  // namespace jerboa::models
