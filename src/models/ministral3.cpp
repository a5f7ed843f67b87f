#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/windows.h"

// Ministral 3: Mistral's layers. Beyond the original context, queries are scaled by the logarithm of their position.
namespace jerboa::models {
namespace {

// [batch, 1, time, 1]
Tensor query_scale(const Decoder& decoder, const Config& rope) {
  const double beta = rope.number("llama_4_scaling_beta", 0);
  if (beta == 0) return {};
  const Tensor position = unsqueeze(maximum(decoder.positions(), 0), {1, 3});  // negative: padding
  const Tensor periods = position / rope.size("original_max_position_embeddings");
  return log(cast(periods, DType::f32) + 1) * beta + 1;
}

}  // namespace

NamedTensors ministral3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config sizes = given.with_defaults(R"({"num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
                                               "rms_norm_eps": 1e-5, "rope_theta": 1000000})");
  const Config config = sizes.has("rope_scaling") ? sizes : sizes.with_defaults(R"({"rope_parameters": {
      "rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 16384, "mscale": 1, "mscale_all_dim": 1,
      "llama_4_scaling_beta": 0.1}})");
  allow_only(config, R"({"attention_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.windows = equal_windows(config);
  if (const auto rope = config.section(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling"))
    form.query_scale = query_scale(decoder, *rope);
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
