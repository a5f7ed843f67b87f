#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/io/safetensors_writer.h>
#include <jerboa/ir/rope.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "models/decoder.h"
#include "models/golden_families.h"
#include "models/mxfp4.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Families with experts, latent attention or recurrent layers: settings that their goldens do not have.
namespace jerboa::families_experts_test {
namespace {

using models::Config;
using models::Family;
using test::expect_error;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

// The golden's config with some values replaced.
Config config_of(const std::string& golden, const std::string& changes) {
  return Config::parse("{" + changes + "}").with_defaults(test::read_text(goldens / golden / "config.json"));
}

Graph graph_of(const Config& config, DType weights = DType::f32) {
  return forward_graph({{"ids", {1, 7}, DType::i32}}, [&](const Inputs& in) {
    return models::family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}, .weights = weights});
  });
}

struct Refused {
  const char *family, *changes, *message;
};

class RefusedSetting : public testing::TestWithParam<Refused> {};

TEST_P(RefusedSetting, IsNamed) {
  const Refused& refused = GetParam();
  expect_error<FileError>([&] { graph_of(config_of(refused.family, refused.changes)); }, refused.message);
}

INSTANTIATE_TEST_SUITE_P(
    Families, RefusedSetting,
    testing::Values(
        Refused{"deepseek_v3", R"("num_key_value_heads": 2)", "num_key_value_heads is 2, which is not"},
        Refused{"deepseek_v3", R"("quantization_config": {"quant_method": "fp8"})",
                "quantization_config: quant_method is \"fp8\", which is not supported for deepseek_v3 models"},
        Refused{"deepseek_v3", R"("n_group": 3)", "n_group is 3, which does not divide 4 experts"},
        Refused{"deepseek_v3", R"("topk_group": 3)", "topk_group is 3, which is above n_group 2"},
        Refused{"deepseek_v3", R"("n_routed_experts": 8, "n_group": 4, "num_experts_per_tok": 3)",
                "num_experts_per_tok is 3, which is more than 1 groups of experts have"},
        Refused{"deepseek_v3", R"("scoring_func": "softmax")", "scoring_func is \"softmax\", which is not supported"},
        Refused{"deepseek_v3", R"("topk_method": "greedy")", "topk_method is \"greedy\", which is not supported"},
        Refused{"deepseek_v3", R"("moe_layer_freq": 2)", "moe_layer_freq is 2, which is not supported; only 1 is"},
        Refused{"deepseek_v3", R"("per_layer_config": {"1": {"n_routed_experts": 2}})", "per_layer_config is {"},
        Refused{"glm4_moe", R"("num_experts_per_tok": 5)", "num_experts_per_tok is 5, but there are 4 experts"},
        Refused{"minimax_m2", R"("rotary_dim": 17, "rope_parameters": null)", "rotary_dim is 17, which is above"},
        Refused{"minimax_m2", R"("scoring_func": "softmax")", "scoring_func is \"softmax\", which is not supported"},
        Refused{"minimax_m2", R"("qk_norm_type": "per_head")", "qk_norm_type is \"per_head\", which is not supported"},
        Refused{"minimax_m2", R"("use_qk_norm": false)", "use_qk_norm is false, which is not supported"},
        Refused{"minimax_m2", R"("use_routing_bias": false)", "use_routing_bias is false, which is not supported"},
        Refused{"minimax_m2", R"("shared_intermediate_size": 8)", "shared_intermediate_size is 8, which is not"},
        Refused{"minimax_m2", R"("layernorm_mlp_beta": 2.0)", "layernorm_mlp_beta is 2.0, which is not supported"},
        Refused{"mixtral", R"("attention_bias": true)", "attention_bias is true, which is not supported"},
        Refused{"gpt_oss", R"("swiglu_limit": 0)", "swiglu_limit is 0, which is not above zero"},
        Refused{"gpt_oss", R"("quantization_config": {"quant_method": "fp8"})", "quant_method is \"fp8\""},
        Refused{"gpt_oss", R"("layer_types": ["chunked_attention", "full_attention"])",
                "unknown entry \"chunked_atten"},
        Refused{"gemma4_text", R"("use_bidirectional_attention": "all")", "use_bidirectional_attention is \"all\""},
        Refused{"gemma4_text", R"("per_layer_config": {"1": {"intermediate_size": 8}})",
                "per_layer_config: 1: intermediate_size is 8, which is not supported"},
        Refused{"gemma4_text", R"("num_kv_shared_layers": 7)", "num_kv_shared_layers is 7, which is not from 0 to 6"},
        Refused{"gemma4_text", R"("num_kv_shared_layers": 1)", "num_kv_shared_layers is 1, which leaves layer 5"},
        Refused{"mamba2", R"("num_heads": 6)", "num_heads is 6, which times head_dim 12 is not expand * hidden_size"},
        Refused{"mamba2", R"("n_groups": 3)", "num_heads is 8, which is not a multiple of 3 groups"},
        Refused{"mamba2", R"("time_step_limit": [1.0, 0.5])", "time_step_limit is [1.0,0.5], which is not a lower"},
        Refused{"mamba2", R"("rms_norm": false)", "rms_norm is false, which is not supported"},
        Refused{"falcon_h1", R"("mamba_use_mlp": false)", "mamba_use_mlp is false, which is not supported"},
        Refused{"falcon_h1", R"("ssm_multipliers": [1.0, 2.0])", "ssm_multipliers is [1.0,2.0], which does not have 5"},
        Refused{"falcon_h1", R"("mlp_multipliers": [1.0])", "mlp_multipliers is [1.0], which does not have 2"},
        Refused{"falcon_h1", R"("mamba_d_head": 12)", "mamba_d_head is 12, which times 4 heads is not 64"},
        Refused{"granitemoehybrid", R"("position_embedding_type": "alibi")", "position_embedding_type is \"alibi\""},
        Refused{"granitemoehybrid", R"("layer_types": ["mamba", "moe", "mamba", "mamba"])", "unknown entry \"moe\""},
        Refused{"nemotron_h", R"("attention_bias": true)", "attention_bias is true, which is not supported"},
        Refused{"granitemoehybrid", R"("normalization_function": "layernorm")",
                "normalization_function is \"layernorm"},
        Refused{"nemotron_h", R"("time_step_limit": [0.0, 0.5])",
                "time_step_limit is [0.0,0.5], which is not supported"},
        Refused{"nemotron_h", R"("mamba_proj_bias": true)", "mamba_proj_bias is true, which is not supported"},
        Refused{"nemotron_h", R"("n_shared_experts": 2)", "n_shared_experts is 2, which is not supported"},
        Refused{"nemotron_h", R"("sliding_window": 8)", "sliding_window is 8, which is not supported"},
        Refused{"nemotron_h", R"("layers_block_type": ["mlp", "conv"])", "unknown type of layer \"conv\""},
        Refused{"qwen3_next", R"("linear_num_value_heads": 3)", "linear_num_value_heads is 3, which is not a multiple"},
        Refused{"qwen3_next", R"("use_sliding_window": true)", "use_sliding_window is true, which is not supported"},
        Refused{"qwen3_5_text", R"("attn_output_gate": false)", "attn_output_gate is false, which is not supported"},
        Refused{"qwen3_5_moe_text", R"("norm_topk_prob": false)", "norm_topk_prob is false, which is not supported"},
        Refused{"qwen3_5_moe_text", R"("mlp_only_layers": [1])", "mlp_only_layers is [1], which is not supported"},
        Refused{"lfm2", R"("block_use_swiglu": false)", "block_use_swiglu is false, which is not supported"},
        Refused{"lfm2", R"("use_pos_enc": false)", "use_pos_enc is false, which is not supported"},
        Refused{"lfm2", R"("layer_types": ["conv"])", "1 layer_types for 3 layers"},
        Refused{"xlstm", R"("weight_mode": "double")", "weight_mode is \"double\", which is neither"},
        Refused{"xlstm", R"("embedding_dim": 32)", "embedding_dim is 32, which is not hidden_size"},
        Refused{"xlstm", R"("add_out_norm": false)", "add_out_norm is false, which is not supported"},
        Refused{"xlstm", R"("qk_dim_factor": 0.3)", "qk_dim_factor is 0.3, which times hidden_size 64"}),
    [](const auto& info) { return std::string(info.param.family) + "_" + std::to_string(info.index); });

void expect_same(const std::string& family, const std::string& newer, const std::string& older) {
  EXPECT_EQ(to_json(graph_of(config_of(family, newer))), to_json(graph_of(config_of(family, older)))) << family;
}

TEST(OlderConfigs, MeanTheSameAsThoseOfToday) {
  expect_same("gemma4_text", R"("per_layer_config": {"5": {"head_dim": 32, "num_key_value_heads": 1}},
                                "attention_k_eq_v": true)",
              R"("per_layer_config": null, "global_head_dim": 32, "num_global_key_value_heads": 1,
                 "attention_k_eq_v": true)");
  const std::string many_layers = R"("num_hidden_layers": 12, "layer_types": null, "per_layer_config": )";
  expect_same("gemma4_text", many_layers + R"({"05": {"head_dim": 32}, "11": {"head_dim": 32}})",
              many_layers + R"(null, "global_head_dim": 32)");
  expect_same("gemma4_text", R"("per_layer_config": {"0": {"head_dim": 32}, "5": {"head_dim": 32}})",
              R"("per_layer_config": {"000": {"head_dim": 32}, "005": {"head_dim": 32}})");
  expect_same("gpt_oss", R"("head_dim": 16)",
              R"("rope_parameters": null, "rope_theta": 150000.0, "rope_scaling": {"type": "yarn", "factor": 32.0,
                 "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096, "truncate": false})");
  expect_same("gpt_oss", R"("layer_types": ["sliding_attention", "full_attention"])", R"("layer_types": null)");
  expect_same("granitemoehybrid", R"("hidden_act": "silu")",
              R"("layer_types": ["mamba", "mamba", "attention", "mamba"])");
  expect_same("nemotron_h", R"("layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp"])",
              R"("layers_block_type": null, "hybrid_override_pattern": "M-*-")");
  expect_same("lfm2", R"("layer_types": ["conv", "full_attention", "conv"])",
              R"("layer_types": null, "full_attn_idxs": [1])");
  expect_same("lfm2", R"("intermediate_size": 256)",
              R"("block_ff_dim": 200, "block_auto_adjust_ff_dim": true, "block_ffn_dim_multiplier": 1.5)");
  expect_same("qwen3_next", R"("hidden_act": "silu")", R"("layer_types": null, "full_attention_interval": 4)");
  expect_same("qwen2_moe", R"("use_sliding_window": true, "sliding_window": 4,
                              "layer_types": ["sliding_attention", "full_attention"])",
              R"("use_sliding_window": true, "sliding_window": 4, "layer_types": null)");
  expect_same("minimax_m2", R"("rope_parameters": {"rope_theta": 5000000.0, "partial_rotary_factor": 0.5})",
              R"("rope_parameters": null, "rotary_dim": 8)");
}

/// Settings that change what a model computes.
struct Variant {
  std::string family, changes;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.family << ": " << variant.changes; }

class FamilyVariant : public testing::TestWithParam<Variant> {};

// Token by token and in chunks, with padding, through caches of random weights; at once, as the reference does.
TEST_P(FamilyVariant, DecodingEqualsOneForwardPass) {
  const Config config = config_of(GetParam().family, GetParam().changes);
  const Family& family = models::family_of(config);
  const double bound = 2e-4 * test::magnification(GetParam().family);
  const Dim time = Dim::symbol("T", 16);
  const Graph whole = forward_graph({{"ids", {1, time}, DType::i32}}, [&](const Inputs& in) {
    return family.logits(config, {.tensors = {{"ids", in["ids"]}}});
  });
  const InputSpecs specs{
      {"ids", {2, time}, DType::i32}, {"positions", {2, time}, DType::i32}, {"lengths", {2}, DType::i32}};
  const Graph cached = forward_graph(specs, [&](const Inputs& in) {
    return family.logits(config, {.tensors = in.all(), .cache = {.capacity = 16, .chunk = 8}});
  });
  Session at_once = create_session({{"run", whole}}, {.device = Device::cpu()});
  Session reference = create_session({{"run", whole}}, {.device = Device::by_name("reference")});
  Session decoding = create_session({{"run", cached}}, {.device = Device::cpu()});
  // Norms and biases that differ from their initial values.
  TensorMap params = at_once.download_params();
  SplitMix random(7);
  for (auto& [name, values] : params)
    for (std::int64_t i = 0; i < values.size(); ++i)
      values.set_number(i, values.number(i) + 0.1 * (random.uniform() - 0.5));
  for (Session* session : {&at_once, &reference, &decoding}) session->upload_params(params);

  constexpr std::int32_t length = 13;
  std::vector<std::int32_t> tokens(length);
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(config.size("vocab_size")));
  const HostTensor ids_of_all({1, length}, std::span<const std::int32_t>(tokens));
  const HostTensor wanted = reference.run("run", {{"ids", ids_of_all}}).get("output");
  const HostTensor computed = at_once.run("run", {{"ids", ids_of_all}}).get("output");
  for (std::int64_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed.number(i), wanted.number(i), bound) << i;
  const std::int64_t vocabulary = wanted.shape().back();
  // The second row is two tokens behind, and so padded at first.
  std::int32_t done = 0;
  for (const std::int32_t chunk : {5, 1, 4, 1, 2}) {
    HostTensor ids(DType::i32, {2, chunk}), positions = ids, lengths(DType::i32, {2});
    for (std::int32_t row = 0; row < 2; ++row) {
      for (std::int32_t t = 0; t < chunk; ++t) {
        const std::int32_t position = done + t - 2 * row;
        ids.set_number(row * chunk + t, position < 0 ? 0 : tokens[static_cast<std::size_t>(position)]);
        positions.set_number(row * chunk + t, std::max(position, -1));
      }
      lengths.set_number(row, std::max(done + chunk - 2 * row, 0));
    }
    const HostTensor got =
        decoding.run("run", {{"ids", ids}, {"positions", positions}, {"lengths", lengths}}).get("output");
    for (std::int32_t row = 0; row < 2; ++row)
      for (std::int32_t t = 0; t < chunk; ++t) {
        const std::int32_t position = done + t - 2 * row;
        for (std::int64_t i = 0; position >= 0 && i < vocabulary; ++i)
          ASSERT_NEAR(got.number((row * chunk + t) * vocabulary + i), wanted.number(position * vocabulary + i), bound)
              << "row " << row << ", position " << position << ", token " << i;
      }
    done += chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, FamilyVariant,
    testing::Values(
        Variant{"deepseek_v3", R"("q_lora_rank": null, "attention_bias": true, "rope_interleave": false,
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "mscale": 0.7,
                                "mscale_all_dim": 1.0, "original_max_position_embeddings": 32})"},
        Variant{"deepseek_v3", R"("norm_topk_prob": false, "n_routed_experts": 6, "n_group": 3, "topk_group": 2,
            "n_shared_experts": 2, "first_k_dense_replace": 0)"},
        Variant{"glm4_moe", R"("use_qk_norm": true, "attention_bias": true, "n_group": 2, "topk_group": 1)"},
        Variant{"olmoe", R"("clip_qkv": 0.1, "attention_bias": true, "norm_topk_prob": true)"},
        Variant{"mixtral", R"("sliding_window": 4, "head_dim": 8)"},
        Variant{"qwen2_moe", R"("qkv_bias": false, "mlp_only_layers": [1], "use_sliding_window": true,
            "sliding_window": 3, "layer_types": null)"},
        Variant{"gpt_oss", R"("attention_bias": false, "swiglu_limit": 0.05, "rope_parameters":
            {"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5})"},
        Variant{"gemma4_text", R"("num_kv_shared_layers": 3, "use_double_wide_mlp": true, "final_logit_softcapping": 2,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                            "full_attention", "full_attention"],
            "per_layer_config": {"1": {"head_dim": 32}, "4": {"head_dim": 32}, "5": {"head_dim": 32}})"},
        Variant{"gemma4_text", R"("enable_moe_block": true, "num_experts": 4, "top_k_experts": 2,
            "moe_intermediate_size": 24, "hidden_size_per_layer_input": 0, "attention_k_eq_v": true,
            "per_layer_config": {"5": {"head_dim": 32, "num_key_value_heads": 1}})"},
        Variant{"mamba2", R"("use_bias": true, "use_conv_bias": false, "n_groups": 1, "tie_word_embeddings": true,
            "time_step_limit": [0.01, 0.9], "conv_kernel": 2)"},
        Variant{"falcon_h1", R"("mamba_rms_norm": true, "mamba_n_groups": 2, "mamba_norm_before_gate": false,
            "mamba_proj_bias": true, "projectors_bias": true, "ssm_multipliers": [0.5, 1.5, 0.7, 1.3, 2.0],
            "mlp_multipliers": [0.8, 1.2], "key_multiplier": 0.5, "embedding_multiplier": 2.0,
            "lm_head_multiplier": 0.5, "attention_in_multiplier": 1.5, "ssm_in_multiplier": 0.6)"},
        Variant{"falcon_h1", R"("mamba_rms_norm": true, "mamba_d_ssm": null, "mamba_d_head": "auto")"},
        Variant{"granitemoehybrid", R"("num_local_experts": 4, "position_embedding_type": "rope",
            "attention_multiplier": 0.3, "residual_multiplier": 0.5, "logits_scaling": 2.0,
            "embedding_multiplier": 3.0, "mamba_proj_bias": true, "mamba_n_groups": 2)"},
        Variant{"nemotron_h", R"("layers_block_type": ["mamba", "moe", "attention", "moe"], "n_routed_experts": 4,
            "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40, "moe_latent_size": 16,
            "mlp_bias": true, "use_bias": true, "routed_scaling_factor": 1.5)"},
        Variant{"lfm2", R"("conv_bias": true, "conv_L_cache": 5, "tie_word_embeddings": false)"},
        Variant{"lfm2_moe", R"("use_expert_bias": false, "norm_topk_prob": false, "routed_scaling_factor": 2.0)"},
        Variant{"qwen3_next", R"("mlp_only_layers": [1], "attention_bias": true, "linear_num_key_heads": 4)"},
        Variant{"qwen3_5_text", R"("linear_value_head_dim": 8, "linear_num_key_heads": 1, "head_dim": 24,
            "rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5})"},
        Variant{"xlstm", R"("weight_mode": "fused", "use_bias": true, "v_dim_factor": 0.5)"}),
    [](const auto& info) { return std::string(info.param.family) + "_" + std::to_string(info.index); });

/// Sizes that no golden has, most of them no multiples of a power of two, for whatever of them the config has.
std::string other_sizes(const std::string& family) {
  const auto golden = nlohmann::json::parse(test::read_text(goldens / family / "config.json"));
  auto sizes = nlohmann::json::parse(R"({"hidden_size": 72, "n_embd": 72, "embedding_dim": 72, "vocab_size": 150,
      "num_attention_heads": 6, "n_head": 6, "num_key_value_heads": 3, "head_dim": 24, "intermediate_size": 88,
      "moe_intermediate_size": 40, "shared_expert_intermediate_size": 56, "shared_intermediate_size": 56,
      "num_local_experts": 6, "num_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 3, "sliding_window": 5,
      "q_lora_rank": 28, "kv_lora_rank": 20, "qk_nope_head_dim": 12, "qk_rope_head_dim": 6, "v_head_dim": 10,
      "linear_num_key_heads": 3, "linear_num_value_heads": 6, "linear_key_head_dim": 12, "linear_value_head_dim": 20,
      "linear_conv_kernel_dim": 3, "conv_L_cache": 5, "conv_kernel": 3, "mamba_d_conv": 3, "state_size": 12,
      "ssm_state_size": 12, "mamba_d_state": 12, "n_groups": 3, "mamba_n_groups": 3, "num_heads": 9,
      "mamba_n_heads": 9, "mamba_d_head": 16, "mamba_d_ssm": 144, "mamba_num_heads": 9, "mamba_head_dim": 10,
      "vocab_size_per_layer_input": 150, "hidden_size_per_layer_input": 20})");
  if (family == "deepseek_v3") sizes["num_key_value_heads"] = 6;
  if (family == "mamba2") sizes["head_dim"] = 16;
  if (family == "xlstm") sizes["num_heads"] = 6;
  auto changes = nlohmann::json::object();
  for (const auto& [key, size] : sizes.items())
    if (golden.contains(key) && golden[key].is_number() && golden[key] != 0) changes[key] = size;
  if (golden.contains("per_layer_config")) changes["per_layer_config"] = {{"5", {{"head_dim", 40}}}};
  const std::string text = changes.dump();
  return text.substr(1, text.size() - 2);
}

std::vector<Variant> families_of_other_sizes() {
  std::vector<Variant> variants;
  for (const std::string& family : test::golden_families()) variants.push_back({family, other_sizes(family)});
  return variants;
}

INSTANTIATE_TEST_SUITE_P(OtherSizes, FamilyVariant, testing::ValuesIn(families_of_other_sizes()),
                         [](const auto& info) { return info.param.family; });

// The goldens' own parameters, some of which are zeros, do not show that routing uses groups and corrections.
TEST(GroupedRouting, ChoosesWithinTheBestGroups) {
  const auto chosen = [](const std::string& changes) {
    const Config config = config_of("deepseek_v3", R"("num_hidden_layers": 2, "n_routed_experts": 4, )" + changes);
    Session session = create_session({{"run", graph_of(config)}}, {.device = Device::cpu()});
    TensorMap params = session.download_params();
    HostTensor& router = params.at("model.layers.1.mlp.gate.weight");
    for (std::int64_t i = 0; i < router.size(); ++i) router.set_number(i, 0);  // every score is 1/2
    HostTensor& correction = params.at("model.layers.1.mlp.gate.e_score_correction_bias");
    const std::array<double, 4> merits{0.3, 0.0, 0.2, 0.2};
    for (std::int64_t i = 0; i < 4; ++i) correction.set_number(i, merits[static_cast<std::size_t>(i)] - 2);
    // An expert that is used changes the result.
    std::vector<int> used;
    session.upload_params(params);
    const HostTensor ids(DType::i32, {1, 7});
    const HostTensor before = session.run("run", {{"ids", ids}}).get("output");
    for (int expert = 0; expert < 4; ++expert) {
      TensorMap changed = params;
      HostTensor& down = changed.at("model.layers.1.mlp.experts.down_proj");
      const std::int64_t size = down.size() / 4;
      for (std::int64_t i = expert * size; i < (expert + 1) * size; ++i) down.set_number(i, 0.5);
      session.upload_params(changed);
      if (session.run("run", {{"ids", ids}}).get("output") != before) used.push_back(expert);
    }
    return used;
  };
  EXPECT_EQ(chosen(R"("n_group": 2, "topk_group": 1)"), (std::vector<int>{2, 3}));  // 0.4 against 0.3 in all
  EXPECT_EQ(chosen(R"("n_group": 1, "topk_group": 1)"), (std::vector<int>{0, 2}));
}

TEST(RopeTables, RotateAsTheOpDoes) {
  const std::vector<RopeAttrs> forms{
      {.base = 500}, {.base = 500, .dims = 8}, {.scaling = RopeScaling::yarn, .factor = 8, .original_context = 64}};
  for (const RopeAttrs& attrs : forms) {
    const InputSpecs specs{{"ids", {2, 5}, DType::i32}, {"x", {2, 3, 5, 12}, DType::f32}};
    Module module =
        compile(forward_graph(specs,
                              [&](const Inputs& in) {
                                const models::Decoder decoder(Config::parse("{}"), {.tensors = {{"ids", in["ids"]}}});
                                const Tensor by_table = decoder.rope(in["x"], rope_table(attrs, 12));
                                return by_table - decoder.rope(in["x"], attrs);
                              }),
                {.device = Device::cpu()});
    HostTensor x(DType::f32, {2, 3, 5, 12});
    SplitMix random(3);
    for (std::int64_t i = 0; i < x.size(); ++i) x.set_number(i, random.uniform() - 0.5);
    const HostTensor difference = module.run({{"ids", HostTensor(DType::i32, {2, 5})}, {"x", x}}).get("output");
    for (const float value : difference.f32()) ASSERT_NEAR(value, 0, 1e-6);
  }
}

TEST(Mxfp4, HasSixteenValuesAndAScalePerBlock) {
  std::vector<std::byte> blocks(32), scales{std::byte{127}, std::byte{125}};
  for (std::size_t i = 0; i < 8; ++i) blocks[i] = static_cast<std::byte>(2 * i + 16 * (2 * i + 1));
  blocks[16] = std::byte{0xf7};
  std::vector<float> values(64);
  models::dequantise_mxfp4(blocks, scales, values);
  const std::vector<float> all{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 16), all);
  EXPECT_EQ(values[32], 1.5f);
  EXPECT_EQ(values[33], -1.5f);
}

// gpt-oss's published checkpoints hold experts as blocks of [out, in], and transformers' own as [in, out].
TEST(Mxfp4, IsReadAsTheTransposeOfItsBlocks) {
  const Config config = config_of("gpt_oss", R"("hidden_size": 64, "intermediate_size": 32, "num_local_experts": 2,
      "quantization_config": {"quant_method": "mxfp4"})");
  const Family& family = models::family_of(config);
  const Graph graph = graph_of(config);
  std::map<std::string, std::vector<float>> floats;
  std::vector<TensorView> views;
  std::vector<std::uint8_t> blocks, scales;
  const auto is_expert = [](const std::string& name) { return name.ends_with(".gate_up_proj"); };
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || is_expert(tensor.name)) continue;
    auto& values = floats[tensor.name];
    const Sizes shape = evaluate(tensor.type.shape, {});
    values.resize(static_cast<std::size_t>(element_count(shape)));
    views.push_back(view_of(tensor.name, shape, std::span<const float>(values)));
  }
  // [experts, out, in / 32, 16]: the value of an element is that of its output's number, times 1 or 2 for the first
  // expert and 4 or 8 for the second.
  for (int expert = 0; expert < 2; ++expert)
    for (int out = 0; out < 64; ++out)
      for (int group = 0; group < 2; ++group) {
        blocks.insert(blocks.end(), 16, static_cast<std::uint8_t>(0x11 * (out % 8)));
        scales.push_back(static_cast<std::uint8_t>(127 + group + 2 * expert));
      }
  for (const char* layer : {"0", "1"}) {
    const std::string name = std::string("model.layers.") + layer + ".mlp.experts.gate_up_proj";
    views.push_back(view_of(name + "_blocks", {2, 64, 2, 16}, std::span<const std::uint8_t>(blocks)));
    views.push_back(view_of(name + "_scales", {2, 64, 2}, std::span<const std::uint8_t>(scales)));
  }
  const test::TempFolder folder;
  write_safetensors(folder / "model.safetensors", views);
  const TensorMap params = models::read_params(SafeTensors::open(folder.path()), graph, family);
  const HostTensor& stacked = params.at("model.layers.1.mlp.experts.gate_up_proj");
  ASSERT_EQ(stacked.shape(), (Sizes{2, 64, 64}));
  const std::array<float, 8> numbers{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::int64_t in = 0; in < 64; ++in)
    for (std::int64_t out = 0; out < 64; ++out)
      ASSERT_EQ(stacked.number((64 + in) * 64 + out), numbers[static_cast<std::size_t>(out % 8)] * (in < 32 ? 4 : 8));

  // Groups of equal values are what int8 has with its largest integer.
  const TensorMap quantised =
      models::read_params(SafeTensors::open(folder.path()), graph_of(config, DType::i8), family);
  const HostTensor& integers = quantised.at("model.layers.1.mlp.experts.gate_up_proj.quantised");
  const HostTensor& group_scales = quantised.at("model.layers.1.mlp.experts.gate_up_proj.scales");
  for (std::int64_t expert = 0; expert < 2; ++expert)
    for (std::int64_t out = 0; out < 64; ++out)
      for (std::int64_t in = 0; in < 64; ++in) {
        const double scale = group_scales.number((expert * 64 + out) * 2 + in / 32);
        ASSERT_NEAR(integers.number((expert * 64 + out) * 64 + in) * scale,
                    numbers[static_cast<std::size_t>(out % 8)] * (in < 32 ? 1 : 2) * (expert == 0 ? 1 : 4), 0.02);
      }

  views.pop_back();
  write_safetensors(folder / "model.safetensors", views);
  expect_error<FileError>([&] { models::read_params(SafeTensors::open(folder.path()), graph, family); },
                          "has no model.layers.1.mlp.experts.gate_up_proj_scales");
}

}  // namespace
}  // namespace jerboa::families_experts_test
