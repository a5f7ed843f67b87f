#include <fmt/format.h>

#include "models/family_graphs.h"
#include "models/llama_like.h"

// GPT-J: the two halves of a layer in parallel behind one norm, rotary pairs of neighbours, and a bias of the logits.
namespace jerboa::models {
namespace {

AttentionForm gptj_attention_form(const Config& config) {
  AttentionForm form;
  form.width = config.size("n_embd");
  form.heads = form.kv_heads = config.size("n_head");
  if (form.width % form.heads != 0) config.fail("n_head", fmt::format("does not divide n_embd {}", form.width));
  form.head_size = form.width / form.heads;
  form.output = "out_proj";
  const int rotated = config.size("rotary_dim");
  if (rotated % 2 != 0 || rotated > form.head_size)
    config.fail("rotary_dim", fmt::format("is not an even number up to {}, the size of a head", form.head_size));
  const auto layers = static_cast<std::size_t>(config.count("n_layer"));
  form.ropes.assign(layers, RopeAttrs{.dims = rotated == form.head_size ? 0 : rotated, .interleaved = true});
  form.windows.assign(layers, 0);
  return form;
}

StackForm gptj_stack(const Decoder& decoder, const Config& config) {
  StackForm stack;
  stack.vocabulary = config.size("vocab_size");
  stack.width = config.size("n_embd");
  stack.layers = config.count("n_layer");
  stack.tied = config.flag("tie_word_embeddings", false);
  stack.tokens = "transformer.wte";
  stack.prefix = "transformer.h.";
  stack.final_norm = "transformer.ln_f";
  stack.head_bias = true;
  stack.attention = "attn";
  stack.norm = centred_norm(decoder, config, "layer_norm_epsilon");
  stack.before_attention = "ln_1";
  stack.before_mlp = "";
  stack.parallel = true;
  return stack;
}

}  // namespace

NamedTensors gptj_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"rotary_dim": 64, "activation_function": "gelu_new"})");
  const Decoder decoder(config, inputs);
  const AttentionForm form = gptj_attention_form(config);
  const PlainMlp mlp{.up = "fc_in",
                     .down = "fc_out",
                     .bias = true,
                     .inner = config.size("n_inner", 4 * form.width),
                     .activation = "activation_function"};
  return decoder_stack(decoder, gptj_stack(decoder, config), form, [&](int, const std::string& name, const Tensor& x) {
    return plain_mlp(decoder, config, mlp, name, x);
  });
}

}  // namespace jerboa::models
