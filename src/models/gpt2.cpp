#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/decoder.h"
#include "models/family_graphs.h"

// GPT-2: learned positions, pre-norm blocks, weights as [in, out].
namespace jerboa::models {
namespace {

Tensor block(const Decoder& decoder, const Config& config, int layer, const Tensor& x) {
  const std::string name = fmt::format("transformer.h.{}", layer);
  const int width = config.size("n_embd"), heads = config.size("n_head");
  if (width % heads != 0) config.fail("n_head", fmt::format("does not divide n_embd {}", width));
  const double eps = norm_epsilon(config, "layer_norm_epsilon", 1e-5);
  const Tensor qkv =
      decoder.linear_in_out(name + ".attn.c_attn", decoder.layer_norm(name + ".ln_1", x, eps), 3 * width);
  const auto [q, k, v] = split<3>(qkv);
  const Tensor queries = split_heads(q, heads);
  const Tensor keys = split_heads(k, heads);
  const Tensor seen = decoder.attend(layer, queries, keys, split_heads(v, heads));
  const Tensor middle = x + decoder.linear_in_out(name + ".attn.c_proj", merge_heads(seen), width);
  const Tensor up = decoder.linear_in_out(name + ".mlp.c_fc", decoder.layer_norm(name + ".ln_2", middle, eps),
                                          config.size("n_inner", 4 * width));
  return middle + decoder.linear_in_out(name + ".mlp.c_proj", activation(config, "activation_function", up), width);
}

}  // namespace

bool gpt2_stores_in_out(const std::string& parameter) {
  return parameter.starts_with("transformer.h.") &&
         (parameter.ends_with("c_attn.weight") || parameter.ends_with("c_fc.weight") ||
          parameter.ends_with("c_proj.weight"));
}

NamedTensors gpt2_decoder(const Config& config, const GraphInputs& inputs) {
  allow_only(config, R"({"scale_attn_weights": true, "scale_attn_by_inverse_layer_idx": false})");
  const Decoder decoder(config, inputs);
  const int vocabulary = config.size("vocab_size"), width = config.size("n_embd");
  const std::string tokens = "transformer.wte";
  Tensor x = decoder.embedding(tokens, decoder.ids(), vocabulary, width);
  x = x + decoder.embedding("transformer.wpe", maximum(decoder.positions(), 0),  // negative: padding
                            config.size("n_positions"), width);
  for (int layer = 0; layer < config.count("n_layer"); ++layer) x = block(decoder, config, layer, x);
  x = decoder.layer_norm("transformer.ln_f", x, norm_epsilon(config, "layer_norm_epsilon", 1e-5));
  return decoder.results(config.flag("tie_word_embeddings", true) ? tokens : "lm_head", x, vocabulary);
}

}  // namespace jerboa::models
