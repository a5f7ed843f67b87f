#include <fmt/format.h>

#include "models/allowed_settings.h"
#include "models/encoder.h"
#include "models/family_graphs.h"
#include "models/rope_config.h"

// Nomic BERT: BERT's layers with rotary positions and gated MLPs.
namespace jerboa::models {
namespace {

struct NomicForm {
  int layers = 0, width = 0, heads = 0, head_size = 0, inner = 0;
  int words = 0, types = 0;  // rows of the token and type tables
  double eps = 0;
  RopeAttrs rope = {};
  bool qkv_bias = false, output_bias = false, up_bias = false, down_bias = false;
};

// The authors' own files use GPT-2's names, and have settings for variants. Only the variants that their text encoders
// use are supported.
bool has_older_names(const Config& config) { return config.has("n_embd"); }

void refuse_variants(const Config& config) {
  allow_only(config, R"({"prenorm": false, "parallel_block": false, "use_rms_norm": false, "causal": false,
      "scale_attn_by_inverse_layer_idx": false, "rotary_emb_scale_base": 1, "rotary_scaling_factor": 1})");
  if (config.integer("num_experts", 0) > 0) config.fail("num_experts", "is not supported: layers have one MLP");
}

// Gated MLPs are named after their activation: swiglu, geglu, glu.
Config with_activation(const Config& config) {
  const std::string name = config.text("activation_function");
  if (name == "swiglu") return config.with_defaults(R"({"hidden_act": "silu"})");
  if (name == "geglu") return config.with_defaults(R"({"hidden_act": "gelu"})");
  if (name == "glu") return config.with_defaults(R"({"hidden_act": "sigmoid"})");
  config.fail("activation_function", "is not supported; only swiglu, geglu and glu are");
}

int padded_words(const Config& config) {
  const int words = config.size("vocab_size"), multiple = config.size("pad_vocab_size_multiple", 1);
  return (words + multiple - 1) / multiple * multiple;
}

RopeAttrs older_rope(const Config& config, int head_size) {
  const std::string values =
      fmt::format(R"({{"rope_theta": {}, "partial_rotary_factor": {}}})", config.positive("rotary_emb_base", 10000),
                  config.positive("rotary_emb_fraction"));
  RopeAttrs attrs = rope_attrs(config, Config::parse(values, config.origin()), head_size);
  attrs.interleaved = config.flag("rotary_emb_interleaved", false);
  return attrs;
}

NomicForm older_form(const Config& config) {
  refuse_variants(config);
  NomicForm form{.layers = config.count("n_layer"),
                 .width = config.size("n_embd"),
                 .heads = head_count(config, "n_head", "n_embd"),
                 .head_size = config.size("n_embd") / config.size("n_head"),
                 .inner = config.size("n_inner", 4 * config.size("n_embd")),
                 .words = padded_words(config),
                 .types = config.integer("type_vocab_size", 2),
                 .eps = norm_epsilon(config, "layer_norm_epsilon", 1e-5)};
  form.rope = older_rope(config, form.head_size);
  form.qkv_bias = form.output_bias = config.flag("qkv_proj_bias", true);
  form.up_bias = config.flag("mlp_fc1_bias", true);
  form.down_bias = config.flag("mlp_fc2_bias", true);
  return form;
}

NomicForm newer_form(const Config& config) {
  const int width = config.size("hidden_size");
  const int heads = config.has("head_dim") ? config.size("num_attention_heads")
                                           : head_count(config, "num_attention_heads", "hidden_size");
  const int head_size = config.size("head_dim", width / heads);
  return {.layers = config.count("num_hidden_layers"),
          .width = width,
          .heads = heads,
          .head_size = head_size,
          .inner = config.size("intermediate_size"),
          .words = config.size("vocab_size"),
          .types = config.integer("type_vocab_size", 2),
          .eps = norm_epsilon(config, "layer_norm_eps", 1e-12),
          .rope = rope_attrs(config, head_size)};
}

Tensor nomic_attention(const Encoder& encoder, const NomicForm& form, const std::string& name, const Tensor& x) {
  const auto [q, k, v] = split<3>(encoder.linear(name + ".Wqkv", x, 3 * form.heads * form.head_size, form.qkv_bias));
  const Tensor queries = encoder.rope(split_heads(q, form.heads), form.rope);
  const Tensor keys = encoder.rope(split_heads(k, form.heads), form.rope);
  const Tensor seen = encoder.attend(queries, keys, split_heads(v, form.heads));
  return encoder.linear(name + ".out_proj", merge_heads(seen), form.width, form.output_bias);
}

Tensor nomic_mlp(const Encoder& encoder, const Config& config, const NomicForm& form, const std::string& name,
                 const Tensor& x) {
  const Tensor up = encoder.linear(name + ".fc11", x, form.inner, form.up_bias);
  const Tensor gate = activation(config, "hidden_act", encoder.linear(name + ".fc12", x, form.inner, form.up_bias));
  return encoder.linear(name + ".fc2", up * gate, form.width, form.down_bias);
}

Tensor nomic_embeddings(const Encoder& encoder, const NomicForm& form) {
  const std::string name = "nomic_bert.embeddings";
  Tensor x = encoder.embedding(name + ".word_embeddings", encoder.ids(), form.words, form.width);
  if (form.types > 0) x = x + encoder.token_types(name + ".token_type_embeddings", form.types, form.width);
  return encoder.layer_norm("nomic_bert.emb_ln", x, form.eps);
}

}  // namespace

NamedTensors nomic_bert_encoder(const Config& given, const GraphInputs& inputs) {
  want_plain_encoder(given);
  const bool older = has_older_names(given);
  const Config config = older ? with_activation(given) : given.with_defaults(R"({"hidden_act": "gelu"})");
  const NomicForm form = older ? older_form(config) : newer_form(config);
  const Encoder encoder(config, inputs);
  Tensor x = nomic_embeddings(encoder, form);
  for (int layer = 0; layer < form.layers; ++layer) {
    const std::string name = fmt::format("nomic_bert.encoder.layers.{}", layer);
    const Tensor seen = nomic_attention(encoder, form, name + ".attn", x);
    x = encoder.layer_norm(name + ".norm1", x + seen, form.eps);
    const Tensor more = nomic_mlp(encoder, config, form, name + ".mlp", x);
    x = encoder.layer_norm(name + ".norm2", x + more, form.eps);
  }
  return {{"hidden", x}};
}

}  // namespace jerboa::models
