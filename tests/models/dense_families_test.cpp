#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "models/tiny_graph.h"
#include "support/expect_error.h"

// Settings of the dense decoder families that their goldens do not use.
namespace jerboa::dense_families_test {
namespace {

using test::expect_error;
using test::tiny_graph;

void expect_same(const std::string& type, const std::string& one, const std::string& other) {
  EXPECT_EQ(to_json(tiny_graph(type, one)), to_json(tiny_graph(type, other))) << type;
}

TEST(DenseFamilies, ReadOlderConfigs) {
  expect_same("gpt_neox", R"("rope_parameters": {"rope_theta": 500, "partial_rotary_factor": 0.5})",
              R"("rotary_emb_base": 500, "rotary_pct": 0.5)");
  const std::string yarn = R"("factor": 8, "original_max_position_embeddings": 16, "beta_fast": 32)";
  expect_same("olmo3",
              R"("layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
      "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 500000},
                          "full_attention": {"rope_theta": 500000, "rope_type": "yarn", )" +
                  yarn + "}}",
              R"("layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
                 "rope_scaling": {"rope_type": "yarn", )" +
                  yarn + "}");
  expect_same("cohere2", R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"])",
              R"("sliding_window_pattern": 2)");
  expect_same("cohere", R"("rope_parameters": {"rope_theta": 500000})", R"("logit_scale": 0.0625)");
  expect_same("exaone4", R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"])",
              R"("sliding_window_pattern": 2)");
  expect_same("exaone4", R"("layer_types": ["sliding_attention", "full_attention", "full_attention"])",
              R"("sliding_window_pattern": "LG")");
  expect_same("hunyuan_v1_dense", R"("rope_theta": 2560000)",
              R"("rope_scaling": {"type": "dynamic", "alpha": 16, "factor": 1})");
  expect_same("apertus", R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 12000000, "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
              "\"attention_bias\": false");
  expect_same("ministral3", R"("rope_parameters": {"type": "yarn", "rope_theta": 1000000, "factor": 16,
      "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 1, "mscale": 1,
      "llama_4_scaling_beta": 0.1})",
              "\"sliding_window\": null");
  const std::string scaled = R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 4,
                                 "llama_4_scaling_beta": 0.2})";
  expect_same("ministral3", "\"rope_parameters\": " + scaled, "\"rope_scaling\": " + scaled);
}

// The queries of position p are scaled by 1 + beta ln(1 + floor(p / original context)).
TEST(DenseFamilies, ScaleMinistralsQueriesByTheirPosition) {
  const auto logits = [](double beta, int positions_of_period) {
    const models::Config config = test::tiny_config("ministral3", fmt::format(R"("initializer_range": 0.5,
        "rope_parameters": {{"rope_type": "default", "llama_4_scaling_beta": {},
                             "original_max_position_embeddings": {}}})",
                                                                              beta, positions_of_period));
    const Graph graph = forward_graph({{"ids", {1, 5}, DType::i32}}, [&](const Inputs& in) {
      return models::family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}});
    });
    Module module = compile(graph, {.device = Device::by_name("cpu")});
    return module.run({{"ids", HostTensor(DType::i32, {1, 5}, {3, 1, 4, 1, 5})}}).get("output");
  };
  const HostTensor plain = logits(0, 3), scaled = logits(1, 3), all = logits(1, 1);
  const auto difference = [&](const HostTensor& other, int position) {
    double most = 0;
    for (std::int64_t i = 8 * position; i < 8 * (position + 1); ++i)
      most = std::max(most, std::abs(plain.number(i) - other.number(i)));
    return most;
  };
  for (const int position : {0, 1, 2}) EXPECT_LT(difference(scaled, position), 1e-6) << position;
  for (const int position : {3, 4}) EXPECT_GT(difference(scaled, position), 1e-4) << position;
  EXPECT_LT(difference(all, 0), 1e-6);
  for (const int position : {1, 2, 3, 4}) EXPECT_GT(difference(all, position), 1e-4) << position;
}

std::set<std::string> parameters(const std::string& type, const std::string& more) {
  std::set<std::string> names;
  for (const TensorInfo& tensor : tiny_graph(type, more).tensors)
    if (tensor.storage == Storage::param) names.insert(tensor.name);
  return names;
}

// The parameters of the second layer and of the head that a setting adds (+) and removes (-).
void expect_change(const std::string& type, const std::string& setting, const std::set<std::string>& wanted) {
  const auto without = parameters(type, "\"x\": 0"), with = parameters(type, setting);
  std::set<std::string> changes;
  const auto compare = [&](const char* sign, const auto& some, const auto& others) {
    for (const std::string& name : some) {
      const auto layer = name.find("layers.1.");
      const bool other_layer = layer == std::string::npos && name.find("layers.") != std::string::npos;
      if (others.contains(name) || other_layer) continue;
      changes.insert(sign + (layer == std::string::npos ? name : name.substr(layer + std::string("layers.1.").size())));
    }
  };
  compare("+", with, without);
  compare("-", without, with);
  EXPECT_EQ(changes, wanted) << type << ": " << setting;
}

TEST(DenseFamilies, HaveTheParametersThatTheirSettingsSay) {
  const std::set<std::string> attention_biases{"+self_attn.q_proj.bias", "+self_attn.k_proj.bias",
                                               "+self_attn.v_proj.bias", "+self_attn.o_proj.bias"};
  for (const char* type : {"apertus", "arcee", "bitnet", "cohere", "cohere2", "gemma", "granite", "hunyuan_v1_dense",
                           "nanochat", "olmo", "olmo2", "olmo3"})
    expect_change(type, R"("attention_bias": true)", attention_biases);
  const std::set<std::string> mlp_biases{"+mlp.gate_proj.bias", "+mlp.up_proj.bias", "+mlp.down_proj.bias"};
  for (const char* type : {"granite", "seed_oss"}) expect_change(type, R"("mlp_bias": true)", mlp_biases);
  std::set<std::string> biases = attention_biases;
  biases.insert(mlp_biases.begin(), mlp_biases.end());
  expect_change("ernie4_5", R"("use_bias": true)", biases);
  expect_change("arcee", R"("mlp_bias": true)", {"+mlp.up_proj.bias", "+mlp.down_proj.bias"});
  const std::set<std::string> no_qkv{"-self_attn.q_proj.bias", "-self_attn.k_proj.bias", "-self_attn.v_proj.bias"};
  expect_change("seed_oss", R"("attention_bias": false)", no_qkv);
  expect_change("seed_oss", R"("attention_out_bias": true)", {"+self_attn.o_proj.bias"});
  for (const char* type : {"glm", "glm4"}) expect_change(type, R"("attention_bias": false)", no_qkv);
  expect_change("cohere", R"("use_qk_norm": true)", {"+self_attn.q_norm.weight", "+self_attn.k_norm.weight"});
  expect_change("gpt_neox", R"("attention_bias": false)", {"-attention.query_key_value.bias", "-attention.dense.bias"});
  expect_change("stablelm", R"("use_qkv_bias": true)",
                {"+self_attn.q_proj.bias", "+self_attn.k_proj.bias", "+self_attn.v_proj.bias"});
  expect_change("stablelm", R"("qk_layernorm": true)",
                {"+self_attn.q_layernorm.norms.0.weight", "+self_attn.q_layernorm.norms.1.weight",
                 "+self_attn.k_layernorm.norms.0.weight"});
  expect_change("stablelm", R"("use_parallel_residual": true)",
                {"-post_attention_layernorm.weight", "-post_attention_layernorm.bias"});
  expect_change("phi", R"("qk_layernorm": true)",
                {"+self_attn.q_layernorm.weight", "+self_attn.q_layernorm.bias", "+self_attn.k_layernorm.weight",
                 "+self_attn.k_layernorm.bias"});
  expect_change("starcoder2", R"("use_bias": false)",
                {"-self_attn.q_proj.bias", "-self_attn.k_proj.bias", "-self_attn.v_proj.bias", "-self_attn.o_proj.bias",
                 "-mlp.c_fc.bias", "-mlp.c_proj.bias"});
  expect_change("apertus", R"("hidden_act": "xielu")",
                {"+mlp.act_fn.alpha_p", "+mlp.act_fn.alpha_n", "+mlp.act_fn.beta", "+mlp.act_fn.eps"});
}

TEST(DenseFamilies, TieTheirTables) {
  for (const char* type : {"apertus", "arcee", "bitnet", "exaone4", "glm", "glm4", "granite", "hunyuan_v1_dense",
                           "ministral3", "nanochat", "olmo", "olmo2", "olmo3", "phi", "seed_oss", "stablelm"})
    expect_change(type, R"("tie_word_embeddings": true)", {"-lm_head.weight"});
  expect_change("gpt_neox", R"("tie_word_embeddings": true)", {"-embed_out.weight"});
  for (const char* type : {"cohere", "cohere2", "ernie4_5", "gemma", "starcoder2"})
    expect_change(type, R"("tie_word_embeddings": false)", {"+lm_head.weight"});
}

// The layers' windows and whether they have a rotary embedding.
std::string layers_of(const std::string& type, const std::string& more) {
  std::string found;
  int ropes = 0;
  for (const Node& node : tiny_graph(type, more).nodes) {
    if (node.op == Op::rope) ++ropes;
    if (node.op != Op::attention) continue;
    found += std::to_string(node.as<AttentionAttrs>().window) + (ropes > 0 ? "r " : " ");
    ropes = 0;
  }
  return found;
}

TEST(DenseFamilies, HaveWindowsAndRotaryPositionsWhereTheyShould) {
  const std::string types = R"("layer_types": ["full_attention", "sliding_attention", "full_attention"], )";
  EXPECT_EQ(layers_of("cohere2", types + R"("sliding_window": 4)"), "0 4r 0 ");
  EXPECT_EQ(layers_of("cohere2", types + R"("sliding_window": null)"), "0 0 0 ");
  EXPECT_EQ(layers_of("exaone4", types + R"("sliding_window": 4)"), "0 4r 0 ");
  EXPECT_EQ(layers_of("exaone4", types + R"("sliding_window": null)"), "0r 0r 0r ");
  EXPECT_EQ(layers_of("exaone4", R"("sliding_window": null, "sliding_window_pattern": null)"), "0r 0r 0r ");
  EXPECT_EQ(layers_of("olmo3", types + R"("sliding_window": 4)"), "0r 4r 0r ");
  EXPECT_EQ(layers_of("ministral3", R"("sliding_window": 4)"), "4r 4r 4r ");
  EXPECT_EQ(layers_of("starcoder2", R"("sliding_window": 4)"), "4r 4r 4r ");
  EXPECT_EQ(layers_of("starcoder2", "\"x\": 0"), "0r 0r 0r ");
}

TEST(DenseFamilies, NameUnsupportedSettings) {
  const auto refuse = [](const std::string& type, const std::string& more, const std::string& message) {
    expect_error<FileError>([&] { tiny_graph(type, more); }, "config.json: " + message);
  };
  refuse("gemma", R"("use_bidirectional_attention": true)", "use_bidirectional_attention is not supported");
  refuse("cohere2", R"("use_qk_norm": true)", "use_qk_norm is true, which is not supported");
  refuse("cohere2", R"("use_parallel_block": false)", "use_parallel_block is false, which is not supported");
  refuse("cohere2", R"("position_embedding_type": "rope")",
         "position_embedding_type is \"rope\", which is not supported");
  refuse("hunyuan_v1_dense", R"("use_cla": true)", "use_cla is true, which is not supported");
  refuse("hunyuan_v1_dense", R"("use_qk_norm": false)", "use_qk_norm is false, which is not supported");
  refuse("starcoder2", R"("mlp_type": "gated")", "mlp_type is \"gated\", which is not supported; only \"default\" is");
  refuse("starcoder2", R"("norm_type": "rms_norm")", "norm_type is \"rms_norm\", which is not supported");
  refuse("ernie4_5", R"("compression_ratio": 2.0)", "compression_ratio is 2.0, which is not supported; only 1 is");
  refuse("apertus", R"("qk_norm": false)", "qk_norm is false, which is not supported");
  refuse("phi3", R"("lm_head_bias": true)", "lm_head_bias is true, which is not supported");
  for (const char* type : {"exaone4", "ministral3", "mistral", "phi3"})
    refuse(type, R"("attention_bias": true)", "attention_bias is true, which is not supported");
  refuse("llama", R"("is_causal": false)", "is_causal is false, which is not supported");
  refuse("llama", R"("per_layer_config": {"1": {"intermediate_size": 8}})", "per_layer_config is {");
  refuse("llama", R"("rope_parameters": {"rope_type": "yarn", "truncate": false})",
         "rope_parameters: truncate is false");
  refuse("cohere2", R"("layer_types": ["chunked_attention", "full_attention", "full_attention"])",
         "unknown entry \"chunked_attention\" in layer_types");
  refuse("exaone4", R"("sliding_window_pattern": "LXG")", "sliding_window_pattern is \"LXG\", which is not a sequence");
  refuse("granite", R"("attention_multiplier": 0)", "attention_multiplier is 0, which is not above zero");
  refuse("granite", R"("logits_scaling": 0)", "logits_scaling is 0, which is not above zero");
  refuse("nanochat", R"("final_logit_softcapping": 0)", "final_logit_softcapping is 0, which is not above zero");
  refuse("hunyuan_v1_dense", R"("rope_scaling": {"type": "dynamic", "alpha": -1})", "rope_scaling: alpha is -1");
  refuse("arcee", R"("hidden_act": "maxout")", "unknown activation \"maxout\" in hidden_act");
  for (const char* type : {"cohere", "cohere2", "ernie4_5", "glm", "glm4", "nanochat"})
    refuse(type,
           R"("rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1],
              "partial_rotary_factor": 1}, "max_position_embeddings": 64)",
           std::string("long_factor and short_factor, LongRoPE, are not supported in ") + type);
  EXPECT_NO_THROW(tiny_graph("ernie4_5", R"("compression_ratio": 1.0)"));
  EXPECT_NO_THROW(tiny_graph("cohere2", R"("use_parallel_block": true, "rotary_pct": 1.0, "use_qk_norm": null)"));
  const std::string gptj = R"("n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16, )";
  refuse("gptj", gptj + R"("rotary_dim": 6)", "rotary_dim is 6, which is not an even number up to 4");
  refuse("gptj", gptj + R"("rotary_dim": 3)", "rotary_dim is 3, which is not an even number up to 4");
  refuse("gptj", gptj + R"("rotary_dim": null)", "rotary_dim is missing");
  refuse("gptj", R"("n_embd": 9, "n_head": 2, "n_layer": 1)", "n_head is 2, which does not divide n_embd 9");
}

}  // namespace
}  // namespace jerboa::dense_families_test
