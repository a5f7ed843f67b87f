#include "models/family_graphs.h"
#include "models/llama_like.h"

// BitNet b1.58: Llama's layers with a norm before the last product of each half.
namespace jerboa::models {
namespace {

Tensor bitnet_attention(const Decoder& decoder, const Config& config, const AttentionForm& form, int layer,
                        const std::string& name, const Tensor& x) {
  const Tensor q = decoder.linear(name + ".q_proj", x, form.heads * form.head_size, form.bias);
  const Tensor k = decoder.linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = decoder.linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor seen = attend_heads(decoder, form, layer, name, q, k, v);
  return decoder.linear(name + ".o_proj", llama_norm(decoder, config)(name + ".attn_sub_norm", seen), form.width,
                        form.output_bias);
}

Tensor bitnet_mlp(const Decoder& decoder, const Config& config, const std::string& name, const Tensor& x) {
  const int inner = config.size("intermediate_size");
  const Tensor gate = activation(config, "hidden_act", decoder.linear(name + ".gate_proj", x, inner, false));
  const Tensor up = decoder.linear(name + ".up_proj", x, inner, false);
  const Tensor read = llama_norm(decoder, config)(name + ".ffn_sub_norm", gate * up);
  return decoder.linear(name + ".down_proj", read, config.size("hidden_size"), false);
}

}  // namespace

NamedTensors bitnet_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 5, "hidden_act": "relu2", "rms_norm_eps": 1e-5,
                                                "rope_theta": 500000})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return bitnet_attention(decoder, config, form, layer, name, x);
      },
      [&](int, const std::string& name, const Tensor& x) { return bitnet_mlp(decoder, config, name, x); });
}

}  // namespace jerboa::models
