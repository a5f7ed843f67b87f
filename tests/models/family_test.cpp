#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "models/golden_families.h"
#include "models/tiny_graph.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "verify/compare.h"

// How each family builds graphs from configs and parameters from checkpoints.
namespace jerboa::family_test {
namespace {

using models::Config;
using models::Family;
using test::expect_error;

constexpr auto graph_of = test::tiny_graph;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

void expect_same(const std::string& type, const std::string& newer, const std::string& older) {
  EXPECT_EQ(to_json(graph_of(type, newer)), to_json(graph_of(type, older))) << type;
}

TEST(OlderConfigs, MeanTheSame) {
  const std::string rope = R"("rope_parameters": {"rope_type": "default", "rope_theta": )";
  expect_same("mistral", rope + R"(500}, "sliding_window": 4096)", R"("rope_theta": 500)");
  expect_same("qwen2", R"("use_sliding_window": true, "sliding_window": 4,
                          "layer_types": ["full_attention", "full_attention", "sliding_attention"])",
              R"("use_sliding_window": true, "sliding_window": 4, "max_window_layers": 2)");
  expect_same("smollm3", rope + R"(2000000}, "no_rope_layers": [1, 0, 1], "tie_word_embeddings": true)",
              R"("no_rope_layer_interval": 2)");
  expect_same("gemma2", rope + R"(10000}, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                          "sliding_window": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0)",
              R"("sliding_window": 4)");
  expect_same("gemma3_text", R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
      "sliding_window": 4, "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 300},
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500}})",
              R"("sliding_window_pattern": 2, "sliding_window": 4, "rope_local_base_freq": 300, "rope_theta": 500,
                 "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  expect_same("qwen3_moe", R"("num_local_experts": 4)", R"("num_experts": 4)");
}

TEST(Configs, ThatNoFamilyCanHaveAreRefused) {
  const auto refuse = [](const std::string& type, const std::string& more, const std::string& message) {
    expect_error<FileError>([&] { graph_of(type, more); }, "config.json: " + message);
  };
  refuse("mistral", R"("num_key_value_heads": 3)", "num_key_value_heads is 3, which does not divide");
  refuse("mistral", R"("num_attention_heads": 0)", "num_attention_heads is 0");
  refuse("mistral", R"("sliding_window": 0)", "sliding_window is 0");
  refuse("phi3", R"("rope_scaling": {"type": "yarn", "factor": 2}, "max_position_embeddings": 8)",
         "rope_scaling in a phi3 model means LongRoPE, but has no long_factor");
  refuse("smollm3", R"("no_rope_layers": [1, 1])", "2 no_rope_layers for 3 layers");
  refuse("smollm3", R"("no_rope_layer_interval": 0)", "no_rope_layer_interval is 0");
  refuse("gemma2", R"("use_bidirectional_attention": true)", "use_bidirectional_attention");
  refuse("gemma2", R"("query_pre_attn_scalar": 0)", "query_pre_attn_scalar is 0");
  refuse("gemma2", R"("final_logit_softcapping": -1)", "final_logit_softcapping is -1");
  refuse("gemma3_text", R"("sliding_window_pattern": 0)", "sliding_window_pattern is 0");
  refuse("gemma3_text", R"("rope_parameters": {"full_attention": {"rope_theta": 5}})",
         "rope_parameters: sliding_attention has no rope_theta");
  refuse("qwen3_moe", R"("num_experts": 1)", "num_experts_per_tok is 2, but there are 1 experts");
  refuse("qwen3_moe", R"("norm_topk_prob": true)", "num_local_experts is missing");
}

TEST(Configs, WithSettingsThatAreNotImplementedAreRefusedByName) {
  const auto refuse = [](const std::string& type, const std::string& more, const std::string& message) {
    expect_error<FileError>([&] { graph_of(type, more); }, "config.json: " + message);
  };
  const std::string gpt2 =
      R"("n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 8, "activation_function": "relu", )";
  refuse("gpt2", gpt2 + R"("scale_attn_weights": false)", "scale_attn_weights is false, which is not supported");
  refuse("gpt2", gpt2 + R"("scale_attn_by_inverse_layer_idx": true)", "scale_attn_by_inverse_layer_idx is true");
  refuse("gpt2", gpt2 + R"("add_cross_attention": true)", "add_cross_attention is true, which is not supported");
  refuse("llama", R"("is_encoder_decoder": true)", "is_encoder_decoder is true");
  for (const char* type : {"llama", "gpt2", "qwen3_moe", "bert"})
    refuse(type, R"("quantization_config": {"quant_method": "gptq", "bits": 4})",
           "quantization_config: quant_method is \"gptq\", which is not supported for " + std::string(type));
  refuse("llama", R"("quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})",
         "quantization_config: quant_method is \"bitsandbytes\"");
  refuse("llama", R"("quantization_config": {"bits": 4})", "quantization_config: quant_method is missing");
  EXPECT_NO_THROW(graph_of("llama", R"("quantization_config": {"quant_method": "bitsandbytes"})"));
  EXPECT_NO_THROW(graph_of("llama", R"("quantization_config": null, "is_encoder_decoder": false)"));
}

TEST(Configs, WithNumbersThatCannotBeMeantAreRefused) {
  const auto refuse = [](const std::string& type, const std::string& more, const std::string& message) {
    expect_error<FileError>([&] { graph_of(type, more); }, "config.json: " + message);
  };
  for (const char* key : {"vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                          "intermediate_size", "num_hidden_layers"})
    for (const char* value : {"0", "-1", "2147483647", "-2147483648", "1e3", "18446744073709551615", "\"8\""})
      refuse("llama", std::string("\"") + key + "\": " + value, std::string(key) + " is ");
  refuse("llama", R"("num_hidden_layers": 2147483647)", "num_hidden_layers is 2147483647, which is not from 1 to 4096");
  refuse("llama", R"("num_attention_heads": 16777216, "num_key_value_heads": 1, "head_dim": 16777216)",
         "num_attention_heads is 16777216, which is too many heads of 16777216 features each");
  refuse("llama", R"("num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": null)",
         "num_attention_heads is 3, which does not divide hidden_size 8");
  refuse("llama", R"("num_attention_heads": 16, "head_dim": null)", "num_attention_heads is 16, which does not divide");
  refuse("llama", R"("head_dim": 3)", "3 of 3 features of a head are rotated");
  for (const char* eps : {"0", "-1e-6", "1", "1e300"})
    refuse("llama", std::string(R"("rms_norm_eps": )") + eps, "rms_norm_eps is ");
  for (const char* base : {"0", "-10000", "1"})
    refuse("llama", std::string(R"("rope_theta": )") + base, "rope_theta is ");
  refuse("llama", R"("rope_parameters": {"rope_theta": 0})", "rope_parameters: rope_theta is 0, which is not above 1");
  refuse("llama", R"("rope_theta": "NaN")", "rope_theta is \"NaN\", which is not a number");
  refuse("llama", R"("rope_theta": 1e999)", "not valid JSON");
  refuse("llama", R"("partial_rotary_factor": 0)", "partial_rotary_factor is 0, which is not above zero");
  refuse("llama", R"("partial_rotary_factor": 2)", "partial_rotary_factor is 2, which is above 1");
  refuse("llama", R"("partial_rotary_factor": 0.1)", "0 of 4 features of a head are rotated");
  const auto scaled = [](const std::string& text) { return R"("rope_scaling": {"type": )" + text + "}"; };
  refuse("llama", scaled(R"("linear", "factor": 0)"), "rope_scaling: factor is 0, which is not above zero");
  refuse("llama", scaled(R"("yarn", "factor": -2, "original_max_position_embeddings": 8)"),
         "rope_scaling: factor is -2, which is not above zero");
  refuse("llama", scaled(R"("yarn", "factor": 2)"), "rope_scaling: original_max_position_embeddings is missing");
  refuse("llama", scaled(R"("yarn", "factor": 2, "beta_fast": 1)"), "rope_scaling: beta_fast is 1, which is not above");
  refuse("llama", scaled(R"("yarn", "factor": 2, "beta_slow": 0)"), "rope_scaling: beta_slow is 0, which is not above");
  refuse("llama", scaled(R"("yarn", "factor": 2, "attention_factor": -1)"), "rope_scaling: attention_factor is -1");
  refuse("llama", scaled(R"("llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4)"),
         "rope_scaling: high_freq_factor is 4, which is not above low_freq_factor 4");
  refuse("llama", R"("initializer_range": -1)", "initializer_range is -1, which is below zero");
  refuse("mistral", R"("sliding_window": 4294967296)", "sliding_window is 4294967296");
  refuse("gemma3_text", R"("rope_local_base_freq": 0)", "rope_local_base_freq is 0, which is not above 1");
  refuse("gemma2", R"("attn_logit_softcapping": 0)", "attn_logit_softcapping is 0, which is not above zero");
  refuse("qwen3_moe", R"("num_experts": 2147483647)", "num_experts is 2147483647, which is not from 1 to 4096");
  refuse("qwen3_moe", R"("num_experts": 4, "num_experts_per_tok": 0)", "num_experts_per_tok is 0");
  refuse("qwen3_moe", R"("num_experts": 4096, "hidden_size": 268435456, "moe_intermediate_size": 268435456)",
         "moe_intermediate_size is 268435456, which is too large for hidden_size 268435456");
  refuse("gpt2", R"("n_embd": 4, "n_head": 3, "n_layer": 1, "n_positions": 4, "activation_function": "relu")",
         "n_head is 3, which does not divide n_embd 4");
}

TEST(Experts, AreInTheLayersThatTheConfigSays) {
  const auto sparse = [](const std::string& more) {
    const Graph graph = graph_of("qwen3_moe", R"("num_experts": 4, )" + more);
    std::vector<bool> layers(3);
    for (const TensorInfo& tensor : graph.tensors)
      for (std::size_t layer = 0; layer < layers.size(); ++layer)
        if (tensor.name == "model.layers." + std::to_string(layer) + ".mlp.experts.down_proj") layers[layer] = true;
    return layers;
  };
  EXPECT_EQ(sparse(R"("mlp_only_layers": [])"), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(sparse(R"("mlp_only_layers": [1])"), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(sparse(R"("decoder_sparse_step": 2)"), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(sparse(R"("decoder_sparse_step": 2, "mlp_only_layers": [1])"), (std::vector<bool>{false, false, false}));
}

// The checkpoint qwen3_moe, which stores each expert's weights separately.
class ExpertWeights : public testing::Test {
 protected:
  Graph graph() const {
    return forward_graph({{"ids", {1, 5}, DType::i32}}, [&](const Inputs& in) {
      return family.logits(config, {.tensors = {{"ids", in["ids"]}}});
    });
  }
  TensorMap written_and_read(const std::vector<TensorView>& views) const {
    const test::TempFolder folder;
    write_safetensors(folder / "model.safetensors", views);
    return models::read_params(SafeTensors::open(folder.path()), graph(), family);
  }

  const Config config = Config::open(goldens / "qwen3_moe");
  const Family& family = models::family_of(config);
  const SafeTensors weights = SafeTensors::open(goldens / "qwen3_moe");
};

TEST_F(ExpertWeights, AreReadOneByOneOrStacked) {
  const TensorMap params = models::read_params(weights, graph(), family);
  const HostTensor& stacked = params.at("model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(stacked.shape(), (Sizes{4, 96, 64}));
  const auto up = to_f32(weights.view("model.layers.1.mlp.experts.2.up_proj.weight"));
  const std::size_t place = (2 * 96 + 48) * up.size() / 48;
  EXPECT_TRUE(std::equal(up.begin(), up.end(), stacked.f32().subspan(place).begin()));

  std::vector<TensorView> views;
  for (const auto& [name, values] : params) views.push_back(view_of(name, values.shape(), values.f32()));
  EXPECT_EQ(written_and_read(views), params);
}

TEST_F(ExpertWeights, ThatAreMissingAreNamed) {
  const auto without = [&](const std::string& part) {
    return [this, part] {
      std::vector<TensorView> views;
      for (const std::string& name : weights.names())
        if (name.find(part) == std::string::npos) views.push_back(weights.view(name));
      written_and_read(views);
    };
  };
  expect_error<FileError>(without("layers.1.mlp.experts.2.up_proj"),
                          "has no model.layers.1.mlp.experts.2.up_proj.weight");
  expect_error<FileError>(without("layers.1.mlp.experts.0."),
                          "has no model.layers.1.mlp.experts.0.gate_proj.weight, "
                          "model.layers.1.mlp.experts.0.up_proj.weight, model.layers.1.mlp.experts.0.down_proj.weight");
  expect_error<FileError>(without("layers.1.mlp.experts."),
                          "has no model.layers.1.mlp.experts.gate_up_proj, model.layers.1.mlp.experts.down_proj");
}

TEST_F(ExpertWeights, OfAnotherShapeAreNamed) {
  std::vector<TensorView> views;
  for (const std::string& name : weights.names()) views.push_back(weights.view(name));
  const auto odd = std::find_if(views.begin(), views.end(), [](const TensorView& view) {
    return view.name == "model.layers.0.mlp.experts.3.up_proj.weight";
  });
  std::swap(odd->shape[0], odd->shape[1]);
  expect_error<FileError>([&] { written_and_read(views); },
                          "model.layers.0.mlp.experts.3.up_proj.weight is [64, 48], but config.json requires [48, 64]");
}

/// The results of one training step of a family's golden.
struct Step {
  double loss = 0;
  TensorMap grads;
};

Step train(const std::string& name, const char* device) {
  const Config config = Config::open(goldens / name);
  const Family& family = models::family_of(config);
  const InputSpecs specs{{"ids", {2, 11}, DType::i32}, {"targets", {2, 11}, DType::i32}};
  const auto loss = [&](const Inputs& in) {
    return mean(cross_entropy(family.logits(config, {.tensors = {{"ids", in["ids"]}}}), in["targets"]));
  };
  Module module = compile(training_graph(specs, loss, Sgd{.lr = 0}), {.device = Device::by_name(device)});
  module.session().upload_params(models::read_params(SafeTensors::open(goldens / name), module.ir(), family));
  HostTensor ids(DType::i32, {2, 11}), targets = ids;
  const int vocabulary = config.size("vocab_size");
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    ids.set_number(i, static_cast<double>(i * 37 % vocabulary));
    targets.set_number(i, static_cast<double>(i * 53 % vocabulary));
  }
  const double value = module.step({{"ids", ids}, {"targets", targets}}).loss();
  return {value, module.session().download_param_grads()};
}

std::vector<double> numbers(const HostTensor& tensor) { return {tensor.f32().begin(), tensor.f32().end()}; }

// A gradient near zero is the result of cancellation, so an error counts in relation to a typical value of its tensor.
// A tensor of which all are near zero holds nothing but such errors.
Tolerance gradient_tolerance(const std::string& family, const std::vector<double>& wanted) {
  const double squares = std::inner_product(wanted.begin(), wanted.end(), wanted.begin(), 0.0);
  const double typical = std::sqrt(squares / static_cast<double>(wanted.size()));
  const double more = test::magnification(family);
  return {.relative = 1e-3,
          .absolute = std::max(1e-6, 5e-4 * more * typical),
          .norm = typical < 1e-6 ? std::numeric_limits<double>::infinity() : 1e-4 * more};
}

class FamilyTraining : public testing::TestWithParam<std::string> {};

TEST_P(FamilyTraining, GivesTheGradientsOfTheReference) {
  const Step wanted = train(GetParam(), "reference"), computed = train(GetParam(), "cpu");
  EXPECT_NEAR(computed.loss, wanted.loss, 1e-5);
  for (const auto& [name, grad] : wanted.grads) {
    const auto wrong =
        difference(numbers(computed.grads.at(name)), numbers(grad), gradient_tolerance(GetParam(), numbers(grad)));
    EXPECT_FALSE(wrong) << name << ": " << *wrong;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTraining, testing::ValuesIn(test::golden_families()), test::name_of);

}  // namespace
}  // namespace jerboa::family_test
