#include <cmath>
#include <fmt/format.h>

#include "models/deepseek_experts.h"
#include "models/family_graphs.h"
#include "models/llama_like.h"
#include "models/rope_config.h"

// DeepSeek-V3: keys and values are computed from a small latent vector per token, and most layers have a mixture of
// experts.
namespace jerboa::models {
namespace {

/// Queries and keys of a head have two parts: features without a position and rotated ones. All heads share the rotated
/// part of the keys.
struct LatentForm {
  int width = 0, heads = 0;
  int query_rank = 0;  ///< of the queries' two factors; 0: a single matrix
  int rank = 0;        ///< of the latent vectors
  int plain = 0, rotating = 0, value = 0;
  bool bias = false;
  double scale = 1;
  RopeAttrs rope;
};

// YaRN's scaling of magnitudes, applied to the scores.
double score_magnitude(const Config& config) {
  const auto older = config.section("rope_scaling");
  const auto rope = config.section("rope_parameters");
  const Config& parameters = rope ? *rope : older ? *older : config;
  if (parameters.text("rope_type", parameters.text("type", "default")) == "default") return 1;
  const double factor = parameters.positive("factor"), part = parameters.number("mscale_all_dim", 0);
  const double magnitude = factor > 1 ? 0.1 * part * std::log(factor) + 1 : 1;
  return part == 0 ? 1 : magnitude * magnitude;
}

LatentForm latent_form(const Config& config) {
  LatentForm form{.width = config.size("hidden_size"),
                  .heads = config.size("num_attention_heads"),
                  .query_rank = config.size("q_lora_rank", 0),
                  .rank = config.size("kv_lora_rank"),
                  .plain = config.size("qk_nope_head_dim"),
                  .rotating = config.size("qk_rope_head_dim"),
                  .value = config.size("v_head_dim"),
                  .bias = config.flag("attention_bias", false),
                  .rope = {}};
  if (config.size("num_key_value_heads", form.heads) != form.heads)
    config.fail("num_key_value_heads", fmt::format("is not num_attention_heads {}", form.heads));
  if (std::int64_t{form.heads} * (std::int64_t{form.plain} + form.rotating + form.value) > Config::largest_size)
    config.fail("num_attention_heads", fmt::format("is too many heads of {} features each", form.plain + form.value));
  form.scale = score_magnitude(config) / std::sqrt(form.plain + form.rotating);
  form.rope = rope_attrs(config, form.rotating);
  form.rope.interleaved = config.flag("rope_interleave", true);
  return form;
}

constexpr double latent_norm_epsilon = 1e-6;  // whatever the config says of the other norms

Tensor queries_of(const Decoder& decoder, const LatentForm& form, const std::string& name, const Tensor& x) {
  const int size = form.heads * (form.plain + form.rotating);
  if (form.query_rank == 0) return split_heads(decoder.linear(name + ".q_proj", x, size, false), form.heads);
  const Tensor small = decoder.rms_norm(
      name + ".q_a_layernorm", decoder.linear(name + ".q_a_proj", x, form.query_rank, form.bias), latent_norm_epsilon);
  return split_heads(decoder.linear(name + ".q_b_proj", small, size, false), form.heads);
}

/// The inputs of one layer's attention, each [batch, heads or 1, time, size].
struct LatentParts {
  Tensor plain_queries, rotating_queries, latent, rotating_key;
  Tensor keys_up, values_up;  ///< [heads, size, rank]: keys and values from latent vectors
};

// Expands keys and values of all heads, which is less work when there are as many queries as keys.
Tensor attend_expanded(const Decoder& decoder, const LatentForm& form, int layer, const LatentParts& parts) {
  const Tensor plain_keys = matmul(parts.latent, parts.keys_up, {.transpose_b = true});
  const Tensor values = matmul(parts.latent, parts.values_up, {.transpose_b = true});
  Shape shared = plain_keys.shape();
  shared.back() = form.rotating;
  const Tensor rotating_keys = broadcast_to(parts.rotating_key, shared);
  const Tensor keys = concat({plain_keys, rotating_keys});
  const Tensor queries = concat({parts.plain_queries, parts.rotating_queries});
  return decoder.attend(layer, queries, keys, values, {.scale = form.scale});
}

// The cache holds latent vectors; queries and results are projected instead of keys and values.
Tensor attend_cached(const Decoder& decoder, const LatentForm& form, int layer, const LatentParts& parts) {
  const Tensor queries = concat({matmul(parts.plain_queries, parts.keys_up), parts.rotating_queries});
  const Tensor kept = concat({parts.latent, parts.rotating_key});
  const Tensor seen = decoder.attend_latent(layer, queries, kept, {.scale = form.scale});
  return matmul(slice(seen, 3, 0, form.rank), parts.values_up, {.transpose_b = true});
}

Tensor latent_attention(const Decoder& decoder, const LatentForm& form, int layer, const std::string& name,
                        const Tensor& x) {
  const auto queries = split(queries_of(decoder, form, name, x), {form.plain, form.rotating});
  const auto small = split(decoder.linear(name + ".kv_a_proj_with_mqa", x, form.rank + form.rotating, form.bias),
                           {form.rank, form.rotating});
  const Tensor up = reshape(
      decoder.unquantised(name + ".kv_b_proj", {std::int64_t{form.heads} * (form.plain + form.value), form.rank}),
      {form.heads, form.plain + form.value, form.rank});
  const auto ups = split(up, {form.plain, form.value}, 1);
  LatentParts parts;
  parts.plain_queries = queries[0];
  parts.keys_up = ups[0];
  parts.values_up = ups[1];
  parts.rotating_queries = decoder.rope(queries[1], form.rope);
  parts.latent = split_heads(decoder.rms_norm(name + ".kv_a_layernorm", small[0], latent_norm_epsilon), 1);
  parts.rotating_key = decoder.rope(split_heads(small[1], 1), form.rope);
  const Tensor seen = decoder.caches().any() ? attend_cached(decoder, form, layer, parts)
                                             : attend_expanded(decoder, form, layer, parts);
  return decoder.linear(name + ".o_proj", merge_heads(seen), form.width, form.bias);
}

}  // namespace

NamedTensors deepseek_v3_decoder(const Config& given, const GraphInputs& inputs) {
  const Config config = given.with_defaults(R"({"hidden_act": "silu", "q_lora_rank": 1536, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 2048,
      "num_experts_per_tok": 8, "n_routed_experts": 256, "n_shared_experts": 1, "routed_scaling_factor": 2.5,
      "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3})");
  const Decoder decoder(config, inputs);
  const LatentForm attention = latent_form(config);
  const ExpertsForm experts = deepseek_experts(config);
  return llama_like(
      decoder, config,
      [&](int layer, const std::string& name, const Tensor& x) {
        return latent_attention(decoder, attention, layer, name, x);
      },
      [&](int layer, const std::string& name, const Tensor& x) {
        return deepseek_mlp(decoder, config, experts, layer, name, x);
      });
}

}  // namespace jerboa::models
