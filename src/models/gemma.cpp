#include "models/gemma.h"

#include <cmath>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "models/family_graphs.h"

namespace jerboa::models {
Config gemma_config(const Config& config) {
  return config.with_defaults(R"({"num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                                  "query_pre_attn_scalar": 256, "sliding_window": 4096, "tie_word_embeddings": true})");
}

Norm gemma_norm(const Decoder& decoder, const Config& config) {
  return [&decoder, eps = norm_epsilon(config, "rms_norm_eps", 1e-6)](const std::string& name, const Tensor& x) {
    return decoder.rms_norm_around_one(name, x, eps);
  };
}

void refuse_bidirectional_attention(const Config& config) {
  if (config.flag("use_bidirectional_attention", false))
    throw FileError(fmt::format("{}: use_bidirectional_attention is not supported: the model would not be a decoder",
                                config.origin()));
}

StackForm gemma_stack(const Decoder& decoder, const Config& config) {
  StackForm stack = stack_form(decoder, config);
  stack.norm = gemma_norm(decoder, config);
  stack.embedding_scale = std::sqrt(static_cast<double>(stack.width));
  return stack;
}

AttentionForm gemma_attention_form(const Config& config) {
  refuse_bidirectional_attention(config);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  form.scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar"));
  form.soft_cap = config.limit("attn_logit_softcapping");
  return form;
}

NamedTensors gemma_decoder(const Decoder& decoder, const Config& config, const AttentionForm& form) {
  StackForm stack = gemma_stack(decoder, config);
  stack.after_attention = "post_attention_layernorm";
  stack.before_mlp = "pre_feedforward_layernorm";
  stack.after_mlp = "post_feedforward_layernorm";
  stack.logit_cap = config.limit("final_logit_softcapping");
  return decoder_stack(decoder, stack, form, [&](int, const std::string& name, const Tensor& x) {
    return gated_mlp(decoder, config, name, x, "hidden_activation");
  });
}

// The first Gemma: Llama's layers with Gemma's norms and scaled embeddings.
NamedTensors gemma_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 16, "head_dim": 256,
                                                "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})");
  refuse_bidirectional_attention(config);
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  return decoder_stack(decoder, config, gemma_stack(decoder, config), form);
}

}  // namespace jerboa::models
