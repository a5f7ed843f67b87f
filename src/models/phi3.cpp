#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Phi-3 and Phi-4: Llama's layers, with queries, keys and values from one product and the MLP's two halves from
// another.
namespace jerboa::models {
namespace {

// LongRoPE, which older files call su or even yarn, is the family's only scaling.
void refuse_other_scaling(const Config& config, const AttentionForm& form) {
  if (form.ropes.front()->scaling != RopeScaling::none)
    throw FileError(
        fmt::format("{}: rope_scaling in a phi3 model means LongRoPE, but has no long_factor", config.origin()));
}

Tensor fused_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                       const Tensor& x) {
  const int queries = form.heads * form.head_size, keys = form.kv_heads * form.head_size;
  const Tensor qkv = decoder.linear(name + ".qkv_proj", x, queries + 2 * keys, false);
  const auto parts = split(qkv, {queries, keys, keys});
  return attend_and_project(decoder, form, layer, name, parts[0], parts[1], parts[2]);
}

}  // namespace

NamedTensors phi3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"rms_norm_eps": 1e-5, "hidden_act": "silu",
                                                "original_max_position_embeddings": 4096})");
  allow_only(config, R"({"attention_bias": false, "mlp_bias": false, "lm_head_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  refuse_other_scaling(config, form);
  form.windows = equal_windows(config);
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return fused_attention(decoder, form, layer, name, x);
      },
      [&](int, const std::string& name, const Tensor& x) { return fused_gated_mlp(decoder, config, name, x); });
}

}  // namespace jerboa::models
