#include "models/allowed_settings.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// Hunyuan's dense models: Llama's layers, with a norm of each head's queries and keys after rope.
namespace jerboa::models {

NamedTensors hunyuan_v1_dense_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "rms_norm_eps": 1e-5})");
  allow_only(config, R"({"use_cla": false, "use_qk_norm": true, "norm_type": "rms", "use_rotary_pos_emb": true,
                         "mlp_bias": false})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.head_norm = llama_norm(decoder, config);
  form.norm_after_rope = true;
  form.query_norm = "query_layernorm";
  form.key_norm = "key_layernorm";
  return llama_like(decoder, config, form);
}

}  // namespace jerboa::models
