#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/base/float16.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>

#include "models/golden_families.h"
#include "support/temp_folder.h"

// Every family with its weights in each type, compared with the same values in f32.
namespace jerboa::weight_types_test {
namespace {

using models::Config;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

// The golden's config with sizes that can be quantised, which need rows of whole groups of 32.
Config config_of(const std::string& family) {
  auto json = nlohmann::json::parse(test::read_text(goldens / family / "config.json"));
  for (const auto& [key, size] :
       {std::pair{"hidden_size", 64}, std::pair{"n_embd", 64}, std::pair{"intermediate_size", 96}})
    if (json.contains(key)) json[key] = size;
  // The width of a recurrent layer is that of its heads.
  if (family == "mamba2") json["head_dim"] = json.value("expand", 2) * 64 / json.at("num_heads").get<int>();
  if (family == "granitemoehybrid")
    json["mamba_d_head"] = json.value("mamba_expand", 2) * 64 / json.at("mamba_n_heads").get<int>();
  json["initializer_range"] = 0.15;
  json["tie_word_embeddings"] = false;  // so that the rows of a table can be rounded without the head
  return Config::parse(json.dump());
}

class WeightTypes : public testing::TestWithParam<std::string> {
 protected:
  WeightTypes() : config_(config_of(GetParam())), family_(models::family_of(config_)) {}

  Module module(DType weights, const char* device = "reference") const {
    return compile(
        forward_graph({{"ids", {1, 9}, DType::i32}},
                      [&](const Inputs& in) {
                        return family_.logits(config_, {.tensors = {{"ids", in["ids"]}}, .weights = weights});
                      }),
        {.device = Device::by_name(device)});
  }

  HostTensor logits(Module& module) const {
    HostTensor ids(DType::i32, {1, 9});
    for (std::int64_t i = 0; i < ids.size(); ++i)
      ids.set_number(i, static_cast<double>(i * 37 % config_.size("vocab_size")));
    return module.run({{"ids", ids}}).get("output");
  }

  Config config_;
  const models::Family& family_;
};

double relative_error(const HostTensor& computed, const HostTensor& wanted) {
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(computed.number(i) - wanted.number(i), 2);
    size += std::pow(wanted.number(i), 2);
  }
  return std::sqrt(error / size);
}

bool has_weights_in(const Module& module, DType dtype) {
  for (const TensorInfo& tensor : module.ir().tensors)
    if (tensor.storage == Storage::param && tensor.type.dtype == dtype) return true;
  return false;
}

// Whether nothing was left as a matrix that could have been quantised. Some are f16 because they are multiplied with
// others, and some f32 because they are sensitive (models/modules.h).
void expect_all_quantised(const Module& module, DType weights) {
  for (const TensorInfo& tensor : module.ir().tensors) {
    if (tensor.storage != Storage::param || tensor.type.shape.size() < 2) continue;
    const bool is_part = tensor.name.ends_with(".scales") || tensor.name.ends_with(".mins");
    const bool is_latent = tensor.name.ends_with("kv_b_proj.weight");
    const bool fits = tensor.type.shape.back().value() % quantised_group == 0;
    EXPECT_FALSE(tensor.type.dtype == DType::f16 && fits && !is_part && !is_latent) << tensor.name;
    if (bits(tensor.type.dtype) >= 16) continue;
    EXPECT_TRUE(tensor.type.dtype == weights || tensor.type.dtype == DType::i8) << tensor.name;
  }
}

// Small weights that decide, or whose errors accumulate from token to token, stay unquantised: routers, gates of
// recurrences, and short convolutions. Biases of experts and norms of heads have two dimensions only because there are
// several experts and heads.
std::set<std::string> sensitive_weights(const std::string& family) {
  const std::string convolution = "mamba.conv1d.weight", mixer = "mixer.conv1d.weight";
  const std::set<std::string> delta_net{"linear_attn.conv1d.weight", "linear_attn.in_proj_a.weight",
                                        "linear_attn.in_proj_b.weight"};
  const std::set<std::string> shared_experts{"mlp.gate.weight", "mlp.shared_expert_gate.weight"};
  const auto both = [](std::set<std::string> some, const std::set<std::string>& others) {
    some.insert(others.begin(), others.end());
    return some;
  };
  const std::map<std::string, std::set<std::string>> by_family{
      {"cohere", {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}},
      {"deepseek_v3", {"mlp.gate.weight"}},
      {"falcon_h1", {convolution}},
      {"glm4_moe", {"mlp.gate.weight"}},
      {"gpt_oss", {"mlp.router.weight", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj_bias"}},
      {"granitemoehybrid", {convolution}},
      {"lfm2", {"conv.conv.weight"}},
      {"lfm2_moe", {"conv.conv.weight", "feed_forward.gate.weight"}},
      {"mamba2", {mixer}},
      {"minimax_m2", {"block_sparse_moe.gate.weight"}},
      {"mixtral", {"block_sparse_moe.gate.weight"}},
      {"nemotron_h", {mixer}},
      {"olmoe", {"mlp.gate.weight"}},
      {"qwen2_moe", shared_experts},
      {"qwen3_5_moe_text", both(delta_net, shared_experts)},
      {"qwen3_5_text", delta_net},
      {"qwen3_moe", {"mlp.gate.weight"}},
      {"qwen3_next", both({"linear_attn.conv1d.weight", "linear_attn.in_proj_ba.weight"}, shared_experts)},
      {"xlstm", {"mlstm_layer.igate_preact.weight", "mlstm_layer.fgate_preact.weight"}}};
  const auto found = by_family.find(family);
  return found == by_family.end() ? std::set<std::string>() : found->second;
}

// The part of a name after the number of a layer.
std::string name_in_layer(const std::string& name) {
  const auto number = name.find_first_of("0123456789");
  return number == std::string::npos ? name : name.substr(name.find('.', number) + 1);
}

void expect_sensitive_as_f32(const Module& exact, const Module& narrow, const std::string& family) {
  std::set<std::string> matrices;
  for (const TensorInfo& tensor : narrow.ir().tensors)
    if (tensor.storage == Storage::param && tensor.type.shape.size() > 1 && tensor.type.dtype == DType::f32)
      matrices.insert(name_in_layer(tensor.name));
  EXPECT_EQ(matrices, sensitive_weights(family));
  for (const TensorInfo& tensor : exact.ir().tensors) {
    if (tensor.storage != Storage::param || tensor.type.shape.size() > 1) continue;
    const TensorId id = narrow.ir().find(tensor.name);
    ASSERT_NE(id, no_tensor) << tensor.name;
    EXPECT_EQ(narrow.ir().tensor(id).type.dtype, DType::f32) << tensor.name;
  }
}

// The values that a graph computes with, as parameters of the graph in f32.
TensorMap widened(const TensorMap& params) {
  TensorMap wide;
  for (const auto& [name, values] : params) {
    HostTensor copy(DType::f32, values.shape());
    for (std::int64_t i = 0; i < values.size(); ++i) copy.set_number(i, values.number(i));
    wide.emplace(name, std::move(copy));
  }
  return wide;
}

// Looking up rows of a quantised table gives f16.
void round_tables(const Module& exact, const Module& narrow, TensorMap& params) {
  for (const Node& node : exact.ir().nodes) {
    if (node.op != Op::embedding) continue;
    const std::string& name = exact.ir().tensor(node.inputs[0]).name;
    if (narrow.ir().find(name + std::string(models::quantised_suffix)) == no_tensor) continue;
    HostTensor& table = params.at(name);
    for (std::int64_t i = 0; i < table.size(); ++i)
      table.set_number(i, f16_to_f32(f32_to_f16(static_cast<float>(table.number(i)))));
  }
}

// The CPU rounds what it multiplies quantised weights with to 8 bits. A router may then choose another expert, and
// errors grow along a recurrence.
double bound_on_cpu(const Module& module) {
  const auto& nodes = module.ir().nodes;
  const bool makes_more = std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
    return node.op == Op::top_k || node.op == Op::linear_attention;
  });
  return makes_more ? 0.2 : 0.05;
}

// The reference computes in f64, and so exactly what the same values give in f32.
TEST_P(WeightTypes, ComputeWhatTheirValuesGiveInF32) {
  Module exact = module(DType::f32);
  const test::TempFolder folder;
  const auto params = exact.session().download_params();
  std::vector<TensorView> views;
  for (const auto& [name, values] : params) views.push_back(view_of(name, values.shape(), values.f32()));
  const auto original = folder / "original";
  std::filesystem::create_directories(original);
  write_safetensors(original / "model.safetensors", views);
  test::write_text(original / "config.json", config_.to_json());
  const SafeTensors file = SafeTensors::open(original);
  for (const DType weights : {DType::f16, DType::bf16, DType::i8, DType::i4}) {
    SCOPED_TRACE(name(weights));
    Module narrow = module(weights);
    EXPECT_TRUE(has_weights_in(narrow, weights));
    narrow.session().upload_params(models::read_params(file, narrow.ir(), family_));
    if (bits(weights) >= 16) {
      exact.session().upload_params(widened(narrow.session().download_params()));
    } else {
      expect_all_quantised(narrow, weights);
      expect_sensitive_as_f32(exact, narrow, GetParam());
      const auto quantised = folder / ("quantised as " + std::string(name(weights))),
                 saved = folder / ("saved from " + std::string(name(weights)));
      models::quantise_folder(original, quantised, weights);
      models::save_folder(saved, models::open_model_folder(quantised));
      TensorMap wide = models::read_params(SafeTensors::open(saved), exact.ir(), family_);
      round_tables(exact, narrow, wide);
      exact.session().upload_params(wide);
    }
    const HostTensor wanted = logits(narrow);
    EXPECT_LT(relative_error(wanted, logits(exact)), 1e-6);
    Module on_cpu = module(weights, "cpu");
    on_cpu.session().upload_params(narrow.session().download_params());
    EXPECT_LT(relative_error(logits(on_cpu), wanted), bits(weights) >= 16 ? 1e-3 : bound_on_cpu(exact));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WeightTypes, testing::ValuesIn(test::golden_families()), test::name_of);

}  // namespace
}  // namespace jerboa::weight_types_test
