#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

#include <jerboa/base/error.h>

#include "models/experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/rope_config.h"
#include "models/windows.h"

// Gemma 4's text models. Local and global layers have heads of different sizes, each layer adds an embedding of the
// tokens that belongs to it alone, and the last layers may reuse the keys and values of earlier ones. Some models run
// an MLP and a mixture of experts side by side.
namespace jerboa::models {
namespace {

/// The attention and MLP of one layer.
struct LayerForm {
  bool slides = false;
  int kv_heads = 1, head_size = 1, window = 0;
  RopeTable rope;
  int source = -1;               ///< the layer whose keys and values it uses; -1: it computes them
  bool values_are_keys = false;  ///< the projection of the keys gives the values, too
  int inner = 1;                 ///< hidden width of the MLP
};

struct Gemma4 {
  const Decoder& decoder;
  const Config& config;
  int width, heads, per_layer;
  double eps;
  bool attention_bias;
  std::vector<LayerForm> layers;
  std::optional<ExpertsForm> experts;

  Tensor norm(const std::string& name, const Tensor& x) const { return decoder.rms_norm(name, x, eps); }
  Tensor unscaled_norm(const Tensor& x) const { return rms_norm(x, {}, eps); }
};

// The last layer is global, whatever the file says.
std::vector<bool> gemma4_sliding(const Config& config) {
  auto sliding = sliding_layers(config, [](int layer) { return (layer + 1) % 6 != 0; });
  sliding.back() = false;
  return sliding;
}

// Layer numbers are padded to the width of the largest: "05" beside "11".
std::optional<Config> settings_of_layer(const Config& by_layer, int layer) {
  const std::string number = std::to_string(layer);
  for (const std::string& key : by_layer.keys())
    if (key.ends_with(number) && key.find_first_not_of('0') >= key.size() - number.size()) return by_layer.section(key);
  return std::nullopt;
}

// Newer versions of transformers list the settings that differ in a layer; older ones have one set of values for all
// global layers.
void read_heads(const Config& config, int layer, LayerForm& form) {
  form.head_size = config.size("head_dim");
  form.kv_heads = config.size("num_key_value_heads");
  if (const auto all = config.section("per_layer_config")) {
    const auto settings = settings_of_layer(*all, layer);
    if (!settings) return;
    for (const std::string& key : settings->keys())
      if (key != "head_dim" && key != "num_key_value_heads") settings->fail(key, "is not supported for a single layer");
    form.head_size = settings->size("head_dim", form.head_size);
    form.kv_heads = settings->size("num_key_value_heads", form.kv_heads);
  } else if (!form.slides) {
    form.head_size = config.size("global_head_dim", form.head_size);
    if (form.values_are_keys) form.kv_heads = config.size("num_global_key_value_heads", form.kv_heads);
  }
}

RopeTable gemma4_rope(const Config& config, const LayerForm& form) {
  const std::string type = form.slides ? "sliding_attention" : "full_attention";
  const auto ropes = config.section("rope_parameters");
  const auto settings = ropes ? ropes->section(type) : std::nullopt;
  if (!settings || !settings->has("rope_theta"))
    throw FileError(fmt::format("{}: rope_parameters has no {} with a rope_theta", config.origin(), type));
  return rope_frequencies(config, *settings, form.head_size);
}

std::vector<LayerForm> gemma4_layers(const Config& config) {
  const auto sliding = gemma4_sliding(config);
  const auto windows = layer_windows(config, sliding);
  const int count = static_cast<int>(sliding.size());
  const int shared = config.integer("num_kv_shared_layers", 0), first_shared = count - shared;
  if (shared < 0 || first_shared < 0) config.fail("num_kv_shared_layers", fmt::format("is not from 0 to {}", count));
  std::vector<LayerForm> layers;
  std::map<bool, int> last;  // layer that computes keys and values, local and global
  for (int layer = 0; layer < count; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    LayerForm form;
    form.slides = sliding[index];
    form.window = windows[index];
    form.values_are_keys = config.flag("attention_k_eq_v", false) && !form.slides;
    read_heads(config, layer, form);
    form.rope = gemma4_rope(config, form);
    const bool shares = layer >= first_shared;
    if (shares && !last.contains(form.slides))
      config.fail("num_kv_shared_layers", fmt::format("leaves layer {} no earlier layer of its type", layer));
    if (shares)
      form.source = last[form.slides];
    else
      last[form.slides] = layer;
    const bool wide = shares && first_shared > 0 && config.flag("use_double_wide_mlp", false);
    form.inner = config.size("intermediate_size") * (wide ? 2 : 1);
    layers.push_back(std::move(form));
  }
  return layers;
}

std::optional<ExpertsForm> gemma4_experts(const Config& config) {
  if (!config.flag("enable_moe_block", false)) return std::nullopt;
  const Config renamed = config.with_defaults(
      fmt::format(R"({{"num_experts_per_tok": {}, "hidden_act": "gelu"}})", config.size("top_k_experts")));
  ExpertsForm form = experts_form(renamed, config.count("num_experts"));
  form.router = "proj";
  form.normalised = true;
  form.hidden = gated_halves(config, "hidden_activation");
  return form;
}

/// Cached keys and values by layer.
using Memories = std::map<int, Caches::KeysAndValues>;

void remember_layer(const Gemma4& model, int layer, const std::string& name, const Tensor& x, Memories& memories) {
  const LayerForm& form = model.layers[static_cast<std::size_t>(layer)];
  const int size = form.kv_heads * form.head_size;
  const Tensor raw = split_heads(model.decoder.linear(name + ".k_proj", x, size, model.attention_bias), form.kv_heads);
  const Tensor values =
      form.values_are_keys
          ? raw
          : split_heads(model.decoder.linear(name + ".v_proj", x, size, model.attention_bias), form.kv_heads);
  const Tensor keys = model.decoder.rope(model.norm(name + ".k_norm", raw), form.rope);
  const Tensor normed = model.unscaled_norm(values);
  memories[layer] = model.decoder.remember(layer, keys, normed, form.window);
}

Tensor gemma4_attention(const Gemma4& model, int layer, const std::string& name, const Tensor& x, Memories& memories) {
  const LayerForm& form = model.layers[static_cast<std::size_t>(layer)];
  const Tensor q = model.decoder.linear(name + ".q_proj", x, model.heads * form.head_size, model.attention_bias);
  const Tensor queries = model.decoder.rope(model.norm(name + ".q_norm", split_heads(q, model.heads)), form.rope);
  if (form.source < 0) remember_layer(model, layer, name, x, memories);
  const auto& seen = memories.at(form.source < 0 ? layer : form.source);
  const Tensor found = model.decoder.attend_to(seen, queries, {.window = form.window, .scale = 1});
  return model.decoder.linear(name + ".o_proj", merge_heads(found), model.width, model.attention_bias);
}

// The router sees the layer's input with a norm of its own, and each expert has a scale for its weight.
Tensor gemma4_mixture(const Gemma4& model, const std::string& name, const Tensor& x) {
  const Decoder& decoder = model.decoder;
  const Tensor tokens = reshape(x, {-1, model.width});
  const Tensor scale = decoder.vector(name + ".router.scale", {model.width}, 1);
  const Tensor scored = model.unscaled_norm(tokens) * scale * (1 / std::sqrt(static_cast<double>(model.width)));
  TopK routes = route(decoder, *model.experts, name + ".router", scored);
  const Tensor scales = decoder.vector(name + ".router.per_expert_scale", {model.experts->count}, 1);
  routes.values = routes.values *
                  take_along_axis(broadcast_to(unsqueeze(scales, {0}), {tokens.dim(0), scales.dim(0)}), routes.indices);
  const Tensor read = model.norm(name + ".pre_feedforward_layernorm_2", tokens);
  const Tensor found = apply_experts(decoder, *model.experts, name + ".experts", read, routes);
  return model.norm(name + ".post_feedforward_layernorm_2", reshape(found, x.shape()));
}

Tensor gemma4_feed_forward(const Gemma4& model, int layer, const std::string& name, const Tensor& x) {
  const int inner = model.layers[static_cast<std::size_t>(layer)].inner;
  const Tensor read = model.norm(name + ".pre_feedforward_layernorm", x);
  Tensor more = gated_mlp_of(model.decoder, model.config, name + ".mlp", read, inner, "hidden_activation");
  if (model.experts) {
    const Tensor plain = model.norm(name + ".post_feedforward_layernorm_1", more);
    more = plain + gemma4_mixture(model, name, x);
  }
  return model.norm(name + ".post_feedforward_layernorm", more);
}

// The layer's gated contribution from its embedding of the tokens.
Tensor layer_embedding_output(const Gemma4& model, const std::string& name, const Tensor& x, const Tensor& embedding) {
  const Tensor gate = model.decoder.linear(name + ".per_layer_input_gate", x, model.per_layer, false);
  const Tensor gated = activation(model.config, "hidden_activation", gate) * embedding;
  const Tensor more = model.decoder.linear(name + ".per_layer_projection", gated, model.width, false);
  return model.norm(name + ".post_per_layer_input_norm", more);
}

/// Embeddings of the tokens for every layer, mixed with a projection of the first one: [batch, time, layers, size].
Tensor layer_embeddings(const Gemma4& model, const Tensor& embedded) {
  const int layers = static_cast<int>(model.layers.size()), size = model.per_layer;
  const Shape shape{embedded.dim(0), embedded.dim(1), layers, size};
  const Tensor tokens = model.decoder.embedding("model.embed_tokens_per_layer", model.decoder.ids(),
                                                model.config.size("vocab_size_per_layer_input"), layers * size) *
                        std::sqrt(static_cast<double>(size));
  const Tensor projected = model.decoder.linear("model.per_layer_model_projection", embedded, layers * size, false) *
                           (1 / std::sqrt(static_cast<double>(model.width)));
  const Tensor normed = model.norm("model.per_layer_projection_norm", reshape(projected, shape));
  return (normed + reshape(tokens, shape)) * std::sqrt(0.5);
}

Tensor gemma4_layer(const Gemma4& model, int layer, const Tensor& x, const Tensor& embeddings, Memories& memories) {
  const std::string name = fmt::format("model.layers.{}", layer);
  const Tensor seen =
      gemma4_attention(model, layer, name + ".self_attn", model.norm(name + ".input_layernorm", x), memories);
  const Tensor middle = x + model.norm(name + ".post_attention_layernorm", seen);
  Tensor result = middle + gemma4_feed_forward(model, layer, name, middle);
  if (embeddings) {
    const Tensor embedding = squeeze(slice(embeddings, 2, layer, layer + 1), {2});
    result = result + layer_embedding_output(model, name, result, embedding);
  }
  return result * model.decoder.vector(name + ".layer_scalar", {1}, 1);
}

Config with_gemma4_defaults(const Config& config) {
  if (config.has("use_bidirectional_attention") && config.text("use_bidirectional_attention") == "all")
    config.fail("use_bidirectional_attention", "is not supported: the model would not be a decoder");
  const Config full = config.with_defaults(R"({"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512,
      "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true, "vocab_size_per_layer_input": 262144,
      "hidden_size_per_layer_input": 256, "global_head_dim": 512, "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000}}})");
  for (const LayerForm& layer : gemma4_layers(full))
    if (full.size("num_attention_heads") % layer.kv_heads != 0)
      full.fail("num_attention_heads", fmt::format("is not a multiple of {} heads of keys", layer.kv_heads));
  return full;
}

}  // namespace

NamedTensors gemma4_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = with_gemma4_defaults(given);
  const Decoder decoder(config, inputs);
  const Gemma4 model{.decoder = decoder,
                     .config = config,
                     .width = config.size("hidden_size"),
                     .heads = config.size("num_attention_heads"),
                     .per_layer = config.integer("hidden_size_per_layer_input", 0),
                     .eps = norm_epsilon(config, "rms_norm_eps", 1e-6),
                     .attention_bias = config.flag("attention_bias", false),
                     .layers = gemma4_layers(config),
                     .experts = gemma4_experts(config)};
  const int vocabulary = config.size("vocab_size");
  const std::string tokens = "model.embed_tokens";
  Tensor x =
      decoder.embedding(tokens, decoder.ids(), vocabulary, model.width) * std::sqrt(static_cast<double>(model.width));
  const Tensor embeddings = model.per_layer > 0 ? layer_embeddings(model, x) : Tensor();
  Memories memories;
  for (int layer = 0; layer < static_cast<int>(model.layers.size()); ++layer)
    x = gemma4_layer(model, layer, x, embeddings, memories);
  x = model.norm("model.norm", x);
  NamedTensors results = decoder.results(config.flag("tie_word_embeddings") ? tokens : "lm_head", x, vocabulary);
  if (const double cap = config.limit("final_logit_softcapping"); cap > 0)
    results["logits"] = tanh(results["logits"] / cap) * cap;
  return results;
}

}  // namespace jerboa::models
