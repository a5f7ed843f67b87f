#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/family.h>

#include "support/expect_error.h"
#include "verify/compare.h"

// Text models of multimodal checkpoints.
namespace jerboa::text_models_test {
namespace {

using models::Config;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/multimodal";

class TextModels : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, TextModels, ::testing::Values("gemma3", "qwen3_5", "qwen3_vl", "smolvlm"),
                         [](const auto& param) { return param.param; });

// The text before the first picture does not depend on it.
TEST_P(TextModels, ReadTextBeforePictures) {
  constexpr std::int32_t first_special = 150;  // pictures and the marks around them
  const std::filesystem::path folder = goldens / GetParam();
  const SafeTensors golden = SafeTensors::open(folder / "golden.safetensors"), weights = SafeTensors::open(folder);
  const Config config = Config::open(folder);
  const models::Family& family = models::family_of(config);
  models::check_layers(weights, config, family);
  std::vector<std::int32_t> ids = to_i32(golden.view("input_ids"));
  ids.erase(std::find_if(ids.begin(), ids.end(), [](std::int32_t id) { return id >= first_special; }), ids.end());
  ASSERT_GE(ids.size(), 4U);
  Module module = compile(forward_graph({{"ids", {1, std::ssize(ids)}, DType::i32}},
                                        [&](const Inputs& in) {
                                          return family.logits(config, {.tensors = {{"ids", in["ids"]}}});
                                        }),
                          {.device = Device::cpu(1)});
  module.session().upload_params(models::read_params(weights, module.ir(), family));
  const HostTensor logits = module.run({{"ids", HostTensor({1, std::ssize(ids)}, std::span(ids))}}).get("output");
  std::vector<double> expected = to_f64(golden.view("logits"));
  expected.resize(static_cast<std::size_t>(logits.size()));
  const std::vector<double> found(logits.f32().begin(), logits.f32().end());
  EXPECT_EQ(difference(found, expected, tolerance_for_typical(expected)).value_or(""), "");
}

TEST(TextModel, OfAnUnknownFamilyIsNotTaken) {
  const Config config = Config::parse(R"({"model_type": "sees", "text_config": {"model_type": "unheard_of"}})");
  test::expect_error<UsageError>([&] { models::family_of(config); }, "no model family is named \"sees\"");
}

TEST(TextModel, HasTheHeadAndTheMarksOfTheWholeModel) {
  const Config config = Config::parse(R"({"model_type": "sees", "tie_word_embeddings": true, "eos_token_id": 7,
      "text_config": {"model_type": "llama", "tie_word_embeddings": false}})");
  EXPECT_EQ(config.text("model_type"), "llama");
  EXPECT_TRUE(config.flag("tie_word_embeddings"));
  EXPECT_EQ(config.integer("eos_token_id"), 7);
}

TEST(TextModel, MayHaveItsTensorsBesideThoseOfTowers) {
  const Config config = Config::parse(R"({"model_type": "llama", "num_hidden_layers": 2})");
  const Config deeper = Config::parse(R"({"model_type": "llama", "num_hidden_layers": 3})");
  const models::Family& family = models::family_of(config);
  const std::vector<std::byte> value(sizeof(float));
  for (const std::string prefix : {"model.", "model.language_model.", "language_model.model.", "model.text_model."}) {
    const std::vector<TensorView> tensors{{prefix + "layers.0.x", StoredType::F32, {1}, value},
                                          {prefix + "layers.1.x", StoredType::F32, {1}, value},
                                          {"vision_tower.layers.7.x", StoredType::F32, {1}, value}};
    const std::vector<std::byte> bytes = encode_safetensors(tensors);
    const SafeTensors file = SafeTensors::from_bytes(bytes);
    EXPECT_NO_THROW(models::check_layers(file, config, family)) << prefix;
    test::expect_error<FileError>([&] { models::check_layers(file, deeper, family); }, "of 2 layers");
  }
}

}  // namespace
}  // namespace jerboa::text_models_test
