#include <fmt/format.h>

#include "models/family_graphs.h"
#include "models/llama_like.h"

// GPT-NeoX and Pythia: the two halves of a layer usually in parallel, each behind its own norm, and one product for
// queries, keys and values.
namespace jerboa::models {
namespace {

// Older files have other names for the rotary embedding's settings.
Config neox_config(const Config& config) {
  return config
      .with_defaults(fmt::format(R"({{"rope_theta": {}, "partial_rotary_factor": {}}})",
                                 config.number("rotary_emb_base", 10000), config.number("rotary_pct", 0.25)))
      .with_defaults(R"({"hidden_act": "gelu", "attention_bias": true, "use_parallel_residual": true})");
}

// The projection interleaves heads: each has its queries, its keys and its values side by side.
Tensor neox_attention(const Decoder& decoder, const AttentionForm& form, int layer, const std::string& name,
                      const Tensor& x) {
  const int size = form.head_size, width = form.heads * size;
  const Tensor qkv = decoder.linear(name + ".query_key_value", x, 3 * width, form.bias);
  const Tensor heads = reshape(qkv, {x.dim(0), x.dim(1), form.heads, std::int64_t{3} * size});
  const auto part = [&](std::int64_t which) {
    return reshape(slice(heads, 3, which * size, (which + 1) * size), {x.dim(0), x.dim(1), width});
  };
  const Tensor q = part(0), k = part(1), v = part(2);
  return attend_and_project(decoder, form, layer, name, q, k, v);
}

}  // namespace

NamedTensors gpt_neox_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = neox_config(given);
  const Decoder decoder(config, inputs);
  AttentionForm form = attention_form(config);
  form.kv_heads = form.heads;
  form.bias = form.output_bias = config.flag("attention_bias");
  form.output = "dense";
  StackForm stack = stack_form(decoder, config);
  stack.tokens = "gpt_neox.embed_in";
  stack.prefix = "gpt_neox.layers.";
  stack.final_norm = "gpt_neox.final_layer_norm";
  stack.head = "embed_out";
  stack.attention = "attention";
  stack.norm = centred_norm(decoder, config, "layer_norm_eps");
  stack.parallel = config.flag("use_parallel_residual");
  return decoder_stack(
      decoder, stack,
      [&](int layer, const std::string& name, const Tensor& x) {
        return neox_attention(decoder, form, layer, name, x);
      },
      [&](int, const std::string& name, const Tensor& x) {
        const PlainMlp mlp{.up = "dense_h_to_4h", .down = "dense_4h_to_h", .bias = true};
        return plain_mlp(decoder, config, mlp, name, x);
      });
}

}  // namespace jerboa::models
