#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>

#include "models/golden_families.h"
#include "support/temp_folder.h"

// Every family with its weights in each type, compared with the same weights in f32.
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
  return Config::parse(json.dump());
}

class WeightTypes : public testing::TestWithParam<std::string> {
 protected:
  WeightTypes() : config_(config_of(GetParam())), family_(models::family_of(config_)) {}

  Module module(DType weights) const {
    return compile(
        forward_graph({{"ids", {1, 9}, DType::i32}},
                      [&](const Inputs& in) {
                        return family_.logits(config_, {.tensors = {{"ids", in["ids"]}}, .weights = weights});
                      }),
        {.device = Device::by_name("cpu")});
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

bool has_op(const Module& module, Op op) {
  const auto& nodes = module.ir().nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) { return node.op == op; });
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

TEST_P(WeightTypes, GiveLogitsOfTheirPrecision) {
  Module exact = module(DType::f32);
  const HostTensor wanted = logits(exact);
  const test::TempFolder folder;
  const auto params = exact.session().download_params();
  std::vector<TensorView> views;
  for (const auto& [name, values] : params) views.push_back(view_of(name, values.shape(), values.f32()));
  write_safetensors(folder / "model.safetensors", views);
  const SafeTensors file = SafeTensors::open(folder.path());
  // A router may exchange experts that are close to each other in its opinion, and errors grow along a recurrence.
  const double routed = has_op(exact, Op::top_k) ? 5 : 1;
  const double recurrent = has_op(exact, Op::linear_attention) || has_op(exact, Op::causal_conv1d) ? 3 : 1;
  for (const auto& [weights, most] : {std::pair{DType::f16, 0.01}, std::pair{DType::bf16, 0.05},
                                      std::pair{DType::i8, 0.12}, std::pair{DType::i4, 0.7}}) {
    Module narrow = module(weights);
    EXPECT_TRUE(has_weights_in(narrow, weights)) << name(weights);
    if (bits(weights) < 16) expect_all_quantised(narrow, weights);
    narrow.session().upload_params(models::read_params(file, narrow.ir(), family_));
    EXPECT_LT(relative_error(logits(narrow), wanted), most * routed * recurrent) << name(weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, WeightTypes, testing::ValuesIn(test::golden_families()), test::name_of);

}  // namespace
}  // namespace jerboa::weight_types_test
