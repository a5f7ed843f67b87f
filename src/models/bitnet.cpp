#include "models/bit_linear.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"

// BitNet b1.58: Llama's layers with a norm before the last product of each half, and products of few bits.
namespace jerboa::models {
namespace {

Tensor bitnet_attention(const Decoder& decoder, const BitLinear& linear, const Norm& norm, const AttentionForm& form,
                        int layer, const std::string& name, const Tensor& x) {
  const Tensor q = linear(name + ".q_proj", x, form.heads * form.head_size, form.bias);
  const Tensor k = linear(name + ".k_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor v = linear(name + ".v_proj", x, form.kv_heads * form.head_size, form.bias);
  const Tensor seen = attend_heads(decoder, form, layer, name, q, k, v);
  return linear(name + ".o_proj", norm(name + ".attn_sub_norm", seen), form.width, form.output_bias);
}

Tensor bitnet_mlp(const BitLinear& linear, const Norm& norm, const Config& config, const std::string& name,
                  const Tensor& x) {
  const int inner = config.size("intermediate_size");
  const Tensor gate = activation(config, "hidden_act", linear(name + ".gate_proj", x, inner, false));
  const Tensor up = linear(name + ".up_proj", x, inner, false);
  const Tensor read = norm(name + ".ffn_sub_norm", gate * up);
  return linear(name + ".down_proj", read, config.size("hidden_size"), false);
}

}  // namespace

NamedTensors bitnet_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"num_key_value_heads": 5, "hidden_act": "relu2", "rms_norm_eps": 1e-5,
                                                "rope_theta": 500000})");
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.bias = form.output_bias = config.flag("attention_bias", false);
  const BitLinear linear(decoder, config);
  const Norm norm = llama_norm(decoder, config);
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return bitnet_attention(decoder, linear, norm, form, layer, name, x);
      },
      [&](int, const std::string& name, const Tensor& x) { return bitnet_mlp(linear, norm, config, name, x); });
}

}  // namespace jerboa::models
