#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/family.h>
#include <jerboa/models/pooling.h>
#include <jerboa/ops/ops.h>

#include "models/golden_families.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"
#include "verify/compare.h"

// Text encoders: padding, training, types of weights, names of checkpoints, heads and configs.
namespace jerboa::encoder_test {
namespace {

using models::Config;
using models::Family;
using models::Pooling;
using test::expect_error;
using Row = std::vector<float>;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

std::vector<std::int32_t> tokens(std::size_t count, std::int32_t seed) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(2 + (seed + static_cast<std::int32_t>(i) * 37) % 150);
  return ids;
}

// Rows padded at the end with a token that is not the padding token: what is there must not matter.
TensorMap batch_of(const std::vector<std::vector<std::int32_t>>& texts) {
  std::size_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const auto rows = static_cast<std::int64_t>(texts.size()), time = static_cast<std::int64_t>(longest);
  HostTensor ids(DType::i32, {rows, time}), lengths(DType::i32, {rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < time; ++i)
      ids.set_number(row * time + i, i < std::ssize(text) ? text[static_cast<std::size_t>(i)] : 9);
    lengths.set_number(row, static_cast<double>(text.size()));
  }
  return {{"ids", ids}, {"lengths", lengths}};
}

HostTensor encode(const std::filesystem::path& folder, const TensorMap& inputs, const std::string& result = "hidden",
                  DType weights = DType::f32) {
  const Config config = Config::open(folder);
  const Family& family = models::family_of(config);
  Module module =
      compile(forward_graph(specs_of(inputs),
                            [&](const Inputs& in) {
                              return family.encode(config, {.tensors = in.all(), .weights = weights}).at(result);
                            }),
              {.device = Device::cpu()});
  module.session().upload_params(models::read_params(SafeTensors::open(folder), module.ir(), family));
  return module.run(inputs).get("output");
}

class EncoderFamily : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Encoders, EncoderFamily, testing::ValuesIn(test::golden_encoders()), test::name_of);

TEST_P(EncoderFamily, IgnoresPadding) {
  const auto longer = tokens(20, 5), shorter = tokens(9, 11);
  const HostTensor both = encode(goldens / GetParam(), batch_of({longer, shorter}));
  const HostTensor alone = encode(goldens / GetParam(), batch_of({shorter}));
  const std::int64_t width = both.shape()[2];
  for (std::int64_t i = 0; i < 9 * width; ++i)
    ASSERT_NEAR(both.number(20 * width + i), alone.number(i), 2e-5) << "token " << i / width;
}

// Sizes that no golden has, with random weights.
TEST_P(EncoderFamily, WithOtherSizesEqualsTheReference) {
  const Config golden = Config::open(goldens / GetParam());
  const Config config = Config::parse(R"({"hidden_size": 72, "dim": 72, "num_attention_heads": 6, "n_heads": 6,
      "intermediate_size": 88, "hidden_dim": 88, "vocab_size": 150, "local_attention": 7})")
                            .with_defaults(golden.has("head_dim") ? R"({"head_dim": 20})" : "{}")
                            .with_defaults(golden.to_json());
  const Family& family = models::family_of(config);
  const TensorMap inputs = batch_of({tokens(20, 5), tokens(9, 11)});
  const Graph graph = forward_graph(
      specs_of(inputs), [&](const Inputs& in) { return family.encode(config, {.tensors = in.all()}).at("hidden"); });
  Session cpu = create_session({{"run", graph}}, {.device = Device::cpu()});
  Session reference = create_session({{"run", graph}}, {.device = Device::by_name("reference")});
  TensorMap params = cpu.download_params();
  SplitMix random(7);
  for (auto& [name, values] : params)
    for (std::int64_t i = 0; i < values.size(); ++i)
      values.set_number(i, values.number(i) + 0.1 * (random.uniform() - 0.5));
  for (Session* session : {&cpu, &reference}) session->upload_params(params);
  TensorMap ids_in_range = inputs;
  HostTensor& ids = ids_in_range.at("ids");
  for (std::int64_t i = 0; i < ids.size(); ++i) ids.set_number(i, std::fmod(ids.number(i), 150));
  const HostTensor computed = cpu.run("run", ids_in_range).get("output");
  const HostTensor wanted = reference.run("run", ids_in_range).get("output");
  ASSERT_EQ(computed.shape(), wanted.shape());
  for (std::int64_t row : {0, 1})
    for (std::int64_t i = 0; i < (row == 0 ? 20 : 9) * 72; ++i)
      ASSERT_NEAR(computed.number(row * 20 * 72 + i), wanted.number(row * 20 * 72 + i), 1e-4) << row << ", " << i / 72;
}

double cosine(const HostTensor& a, const HostTensor& b) {
  const auto dot = [](const HostTensor& x, const HostTensor& y) {
    return std::inner_product(x.f32().begin(), x.f32().end(), y.f32().begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

TEST_P(EncoderFamily, IsCloseWithSmallerWeights) {
  const TensorMap batch = batch_of({tokens(12, 3)});
  const HostTensor exact = encode(goldens / GetParam(), batch);
  EXPECT_GT(cosine(encode(goldens / GetParam(), batch, "hidden", DType::f16), exact), 0.99999);
  EXPECT_GT(cosine(encode(goldens / GetParam(), batch, "hidden", DType::i8), exact), 0.999);
  EXPECT_GT(cosine(encode(goldens / GetParam(), batch, "hidden", DType::i4), exact), 0.98);
}

TensorMap gradients(const std::string& name, const char* device) {
  const Config config = Config::open(goldens / name);
  const Family& family = models::family_of(config);
  const TensorMap batch = batch_of({tokens(11, 5), tokens(7, 8)});
  const auto loss = [&](const Inputs& in) {
    const Tensor hidden = family.encode(config, {.tensors = in.all()}).at("hidden");
    const Tensor weights = sin(cast(arange(hidden.dim(2)), DType::f32));
    return sum(models::pool(hidden, in["lengths"], Pooling::mean) * weights);
  };
  Module module = compile(training_graph(specs_of(batch), loss, Sgd{.lr = 0}), {.device = Device::by_name(device)});
  module.session().upload_params(models::read_params(SafeTensors::open(goldens / name), module.ir(), family));
  module.step(batch).loss();
  return module.session().download_param_grads();
}

std::vector<double> numbers(const HostTensor& tensor) { return {tensor.f32().begin(), tensor.f32().end()}; }

TEST_P(EncoderFamily, TrainsWithTheGradientsOfTheReference) {
  const TensorMap wanted = gradients(GetParam(), "reference"), computed = gradients(GetParam(), "cpu");
  for (const auto& [name, grad] : wanted) {
    // Keys' biases have no effect, so their gradients are rounding errors.
    const bool is_noise = name.ends_with("key.bias") || name.ends_with(".k.bias") || name.ends_with("k_lin.bias");
    const auto wrong = difference(numbers(computed.at(name)), numbers(grad),
                                  {.relative = 1e-3, .absolute = 2e-5, .norm = is_noise ? 1e9 : 1e-4});
    EXPECT_FALSE(wrong) << name << ": " << *wrong;
  }
}

// A copy of a golden folder with other names of tensors.
template <class Rename>
void copy_renamed(const std::string& golden, const std::filesystem::path& to, const Rename& rename) {
  std::filesystem::copy_file(goldens / golden / "config.json", to / "config.json");
  const SafeTensors file = SafeTensors::open(goldens / golden);
  std::vector<TensorView> views;
  for (const std::string& name : file.names()) {
    views.push_back(file.view(name));
    views.back().name = rename(name);
  }
  write_safetensors(to / "model.safetensors", views);
}

// Models with heads have a prefix before the encoder's parameters.
TEST_P(EncoderFamily, LoadsCheckpointsWithAPrefix) {
  const test::TempFolder folder;
  const Config config = Config::open(goldens / GetParam());
  const std::string prefix(models::family_of(config).optional_prefix);
  ASSERT_FALSE(prefix.empty());
  copy_renamed(GetParam(), folder.path(), [&](const std::string& name) { return prefix + name; });
  models::check_layers(SafeTensors::open(folder.path()), config, models::family_of(config));
  const TensorMap batch = batch_of({tokens(5, 1)});
  EXPECT_EQ(encode(folder.path(), batch), encode(goldens / GetParam(), batch));
}

TEST(EncoderCheckpoints, MayHaveTensorFlowsNamesOfNorms) {
  const test::TempFolder folder;
  copy_renamed("bert", folder.path(), [](std::string name) {
    for (const auto& [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (name.ends_with(now)) name.replace(name.size() - std::string(now).size(), std::string::npos, then);
    return "bert." + name;
  });
  const TensorMap batch = batch_of({tokens(5, 1)});
  EXPECT_EQ(encode(folder.path(), batch), encode(goldens / "bert", batch));
}

TEST(EncoderInputs, TokenTypesChooseRowsOfTheirTable) {
  TensorMap batch = batch_of({tokens(6, 2)});
  const HostTensor usual = encode(goldens / "bert", batch);
  batch.emplace("token_types", HostTensor(Sizes{1, 6}, std::vector<std::int32_t>(6, 0)));
  EXPECT_EQ(encode(goldens / "bert", batch), usual);
  batch.at("token_types") = HostTensor(Sizes{1, 6}, std::vector<std::int32_t>{0, 0, 0, 1, 1, 1});
  EXPECT_NE(encode(goldens / "bert", batch), usual);
}

TEST(EncoderInputs, ThatItCannotUseAreRefused) {
  const Config config = Config::open(goldens / "roberta");
  const auto build = [&](std::int64_t time, const models::CacheOptions& cache, bool positions) {
    return [&config, time, cache, positions] {
      trace([&] {
        models::GraphInputs inputs{.tensors = {{"ids", tensor_input("ids", {1, time}, DType::i32)}}, .cache = cache};
        if (positions) inputs.tensors["positions"] = tensor_input("positions", {1, time}, DType::i32);
        output("hidden", models::family_of(config).encode(config, inputs).at("hidden"));
      });
    };
  };
  build(62, {}, false)();
  expect_error<UsageError>(build(63, {}, false), "supports texts of up to 62 tokens, not 63");
  expect_error<UsageError>(build(8, {.capacity = 8}, false), "cannot use a cache");
  expect_error<UsageError>(build(8, {}, true), "leave out the input positions");
}

// Padding tokens within a text do not count: the tokens of this text have the positions 2, 1, 3 and 4 of the table.
TEST(RobertaPositions, SkipPaddingTokens) {
  const TensorMap batch = batch_of({{5, 1, 6, 7}});
  const HostTensor usual = encode(goldens / "roberta", batch);
  const auto with_changed_row = [&](std::size_t row) {
    const test::TempFolder folder;
    std::filesystem::copy_file(goldens / "roberta" / "config.json", folder / "config.json");
    const SafeTensors file = SafeTensors::open(goldens / "roberta");
    std::vector<TensorView> views;
    Row table;
    for (const std::string& name : file.names()) {
      views.push_back(file.view(name));
      if (name != "embeddings.position_embeddings.weight") continue;
      table = to_f32(file.view(name));
      for (std::size_t i = 0; i < 48; ++i) table[row * 48 + i] += i % 2 == 0 ? 1.0f : -1.0f;
      views.back() = view_of(name, file.view(name).shape, std::span<const float>(table));
    }
    write_safetensors(folder / "model.safetensors", views);
    return encode(folder.path(), batch);
  };
  for (const std::size_t row : {0u, 5u, 6u}) EXPECT_EQ(with_changed_row(row), usual) << row;
  for (const std::size_t row : {1u, 2u, 3u, 4u}) EXPECT_NE(with_changed_row(row), usual) << row;
}

// A tiny model; `more` has the keys in question.
Graph graph_of(const std::string& type, const std::string& more) {
  const Config config =
      Config::parse("{" + more + "}").with_defaults(R"({"model_type": ")" + type + R"(", "vocab_size": 8,
      "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 4, "dim": 8,
      "n_heads": 2, "n_layers": 2, "hidden_dim": 12})");
  return forward_graph({{"ids", {1, 5}, DType::i32}}, [&](const Inputs& in) {
    return models::family_of(config).encode(config, {.tensors = {{"ids", in["ids"]}}}).at("hidden");
  });
}

void expect_same(const std::string& type, const std::string& newer, const std::string& older) {
  EXPECT_EQ(to_json(graph_of(type, newer)), to_json(graph_of(type, older))) << type;
}

TEST(OlderEncoderConfigs, MeanTheSame) {
  expect_same("modernbert", R"("layer_types": ["full_attention", "sliding_attention", "full_attention",
      "sliding_attention"], "local_attention": 6, "rope_parameters": {"full_attention": {"rope_theta": 500.0,
      "rope_type": "default"}, "sliding_attention": {"rope_theta": 300.0, "rope_type": "default"}})",
              R"("global_attn_every_n_layers": 2, "local_attention": 6, "global_rope_theta": 500.0,
      "local_rope_theta": 300.0)");
  expect_same("modernbert", R"("global_rope_theta": 160000.0, "local_rope_theta": 10000.0, "local_attention": 128,
      "norm_bias": false, "hidden_activation": "gelu", "global_attn_every_n_layers": 3)",
              "");
  expect_same("modernbert", R"("local_rope_theta": 160000)", R"("local_rope_theta": null)");
  expect_same("bert", R"("hidden_act": "gelu", "layer_norm_eps": 1e-12, "type_vocab_size": 2,
      "max_position_embeddings": 512, "position_embedding_type": "absolute")",
              "");
  expect_same("nomic_bert", R"("hidden_act": "silu", "layer_norm_eps": 1e-12, "num_hidden_layers": 2,
      "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"})",
              R"("n_embd": 8, "n_head": 2, "n_layer": 2, "n_inner": 12, "activation_function": "swiglu",
      "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "qkv_proj_bias": false,
      "mlp_fc1_bias": false, "mlp_fc2_bias": false, "rotary_scaling_factor": null, "pad_vocab_size_multiple": 8)");
}

TEST(EncoderConfigs, ThatAreNotSupportedAreRefusedByName) {
  const auto refuse = [](const std::string& type, const std::string& more, const std::string& message) {
    expect_error<FileError>([&] { graph_of(type, more); }, "config.json: " + message);
  };
  for (const char* type : {"bert", "roberta", "xlm-roberta"}) {
    refuse(type, R"("position_embedding_type": "relative_key")", "position_embedding_type is \"relative_key\"");
    refuse(type, R"("is_decoder": true)", "is_decoder is true");
    refuse(type, R"("add_cross_attention": true)", "add_cross_attention is true");
    refuse(type, R"("num_attention_heads": 3)", "num_attention_heads is 3, which does not divide hidden_size 8");
    refuse(type, R"("hidden_act": "cubic")", "unknown activation \"cubic\" in hidden_act");
    refuse(type, R"("type_vocab_size": 0)", "type_vocab_size is 0");
    refuse(type, R"("layer_norm_eps": 1)", "layer_norm_eps is 1");
  }
  refuse("roberta", R"("pad_token_id": -1)", "pad_token_id is -1");
  refuse("roberta", R"("pad_token_id": null)", "pad_token_id is missing");
  refuse("distilbert", R"("n_heads": 3)", "n_heads is 3, which does not divide dim 8");
  refuse("distilbert", R"("activation": "cubic")", "unknown activation \"cubic\" in activation");
  refuse("mpnet", R"("relative_attention_num_buckets": 16)", "relative_attention_num_buckets is 16");
  refuse("modernbert", R"("local_attention": 0)", "local_attention is 0");
  refuse("modernbert", R"("global_attn_every_n_layers": 0)", "global_attn_every_n_layers is 0");
  refuse("modernbert", R"("layer_types": ["full_attention"])", "1 layer_types for 4 layers");
  const std::string older = R"("n_embd": 8, "n_head": 2, "n_layer": 2, "activation_function": "swiglu",
      "rotary_emb_fraction": 1.0, )";
  refuse("nomic_bert", older + R"("prenorm": true)", "prenorm is true");
  refuse("nomic_bert", older + R"("rotary_scaling_factor": 2.0)", "rotary_scaling_factor is 2.0");
  refuse("nomic_bert", older + R"("num_experts": 8)", "num_experts is 8");
  refuse("nomic_bert", R"("n_embd": 8, "activation_function": "gelu")", "activation_function is \"gelu\"");
  refuse("nomic_bert", R"("architectures": ["NomicBertForSequenceClassification"])", "architectures is ");
}

TEST(EncoderConfigs, MayHaveHeadsOfAnySize) {
  const Graph graph = graph_of("nomic_bert", R"("head_dim": 6)");
  EXPECT_EQ(graph.tensor(graph.find("nomic_bert.encoder.layers.0.attn.Wqkv.weight")).type.shape, (Shape{36, 8}));
  EXPECT_EQ(graph.tensor(graph.find("nomic_bert.encoder.layers.0.attn.out_proj.weight")).type.shape, (Shape{8, 12}));
}

// y = W x + b on the host.
Row dense(const SafeTensors& weights, const std::string& name, const Row& x, bool bias = true) {
  const Row matrix = to_f32(weights.view(name + ".weight"));
  Row y = bias ? to_f32(weights.view(name + ".bias")) : Row(matrix.size() / x.size());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] += std::inner_product(x.begin(), x.end(), matrix.begin() + static_cast<std::ptrdiff_t>(i * x.size()), 0.0f);
  return y;
}
template <class Function>
Row each(Row x, const Function& function) {
  for (float& value : x) value = function(value);
  return x;
}
float tanh_of(float x) { return std::tanh(x); }
float relu_of(float x) { return std::max(x, 0.0f); }
float gelu_of(float x) { return x / 2 * (1 + std::erf(x / std::sqrt(2.0f))); }

/// A golden folder with a classification head of these modules [out, in] added.
class HeadFolder {
 public:
  HeadFolder(const std::string& golden, const std::string& prefix, const std::string& architecture,
             const std::vector<std::pair<std::string, Sizes>>& head, const std::string& more = "") {
    std::string config = test::read_text(goldens / golden / "config.json");
    config.insert(config.find('{') + 1, more + R"("id2label": {"0": "bad", "1": "fair", "2": "good"},)");
    const auto at = config.find("Model\"");
    config.replace(config.rfind('"', at), at + 6 - config.rfind('"', at), "\"" + architecture + "\"");
    test::write_text(folder_ / "config.json", config);
    const SafeTensors file = SafeTensors::open(goldens / golden);
    std::vector<TensorView> views;
    for (const std::string& name : file.names()) {
      views.push_back(file.view(name));
      views.back().name = prefix + name;
    }
    std::vector<Row> values;
    values.reserve(head.size());
    for (const auto& [name, shape] : head) {
      Row& row = values.emplace_back();
      for (std::int64_t i = 0; i < std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
           ++i)
        row.push_back(
            static_cast<float>(std::sin(1.0 + static_cast<double>(i) * 0.7 + static_cast<double>(values.size()))) / 4);
      views.push_back(view_of(name, shape, std::span<const float>(row)));
    }
    write_safetensors(folder_ / "model.safetensors", views);
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  SafeTensors weights() const { return SafeTensors::open(path()); }
  /// The hidden state of a text of five tokens.
  HostTensor hidden() const { return encode(path(), batch_of({tokens(5, 4)})); }
  Row first() const {
    const HostTensor all = hidden();
    const auto row = all.f32().first(static_cast<std::size_t>(all.shape()[2]));
    return {row.begin(), row.end()};
  }
  void expect_logits(const Row& wanted) const {
    const HostTensor logits = encode(path(), batch_of({tokens(5, 4)}), "logits");
    EXPECT_EQ(logits.shape(), (Sizes{1, 3}));
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(logits.f32()[i], wanted[i], 1e-4) << i;
  }

 private:
  test::TempFolder folder_;
};

TEST(ClassificationHeads, AreThoseOfTheirFamilies) {
  const HeadFolder bert("bert", "bert.", "BertForSequenceClassification",
                        {{"classifier.weight", {3, 64}}, {"classifier.bias", {3}}});
  bert.expect_logits(
      dense(bert.weights(), "classifier", each(dense(bert.weights(), "bert.pooler.dense", bert.first()), tanh_of)));
  for (const auto& [golden, prefix, name] : {std::tuple{"roberta", "roberta.", "RobertaForSequenceClassification"},
                                             {"xlm_roberta", "roberta.", "XLMRobertaForSequenceClassification"},
                                             {"mpnet", "mpnet.", "MPNetForSequenceClassification"}}) {
    const HeadFolder model(golden, prefix, name,
                           {{"classifier.dense.weight", {48, 48}},
                            {"classifier.dense.bias", {48}},
                            {"classifier.out_proj.weight", {3, 48}},
                            {"classifier.out_proj.bias", {3}}});
    const Row inner = each(dense(model.weights(), "classifier.dense", model.first()), tanh_of);
    model.expect_logits(dense(model.weights(), "classifier.out_proj", inner));
  }
  const HeadFolder distilbert("distilbert", "distilbert.", "DistilBertForSequenceClassification",
                              {{"pre_classifier.weight", {48, 48}},
                               {"pre_classifier.bias", {48}},
                               {"classifier.weight", {3, 48}},
                               {"classifier.bias", {3}}});
  distilbert.expect_logits(dense(distilbert.weights(), "classifier",
                                 each(dense(distilbert.weights(), "pre_classifier", distilbert.first()), relu_of)));
  EXPECT_EQ(models::class_names(Config::open(distilbert.path())), (std::vector<std::string>{"bad", "fair", "good"}));
}

Row normed(const Row& x, const Row& weight, double eps) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double variance = 0;
  for (const float value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
  Row y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back(static_cast<float>((x[i] - mean) / std::sqrt(variance + eps)) * weight[i]);
  return y;
}

TEST(ClassificationHeads, OfModernBertPoolAsTheConfigSays) {
  const std::vector<std::pair<std::string, Sizes>> head{{"head.dense.weight", {48, 48}},
                                                        {"head.norm.weight", {48}},
                                                        {"classifier.weight", {3, 48}},
                                                        {"classifier.bias", {3}}};
  const auto logits_of = [](const HeadFolder& model, const Row& pooled) {
    const Row inner = each(dense(model.weights(), "head.dense", pooled, false), gelu_of);
    return dense(model.weights(), "classifier", normed(inner, to_f32(model.weights().view("head.norm.weight")), 1e-5));
  };
  const HeadFolder cls("modernbert", "model.", "ModernBertForSequenceClassification", head);
  cls.expect_logits(logits_of(cls, cls.first()));
  HeadFolder mean("modernbert", "model.", "ModernBertForSequenceClassification", head);
  std::string config = test::read_text(mean.path() / "config.json");
  config.replace(config.find("\"cls\""), 5, "\"mean\"");
  test::write_text(mean.path() / "config.json", config);
  const HostTensor hidden = mean.hidden();
  Row average(48);
  for (std::size_t i = 0; i < hidden.f32().size(); ++i) average[i % 48] += hidden.f32()[i] / 5;
  mean.expect_logits(logits_of(mean, average));
}

TEST(Pooling, CombinesTheTokensOfEachText) {
  const HostTensor hidden(Sizes{2, 3, 2}, std::vector<float>{1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 99, 99});
  const HostTensor lengths(Sizes{2}, std::vector<std::int32_t>{3, 2});
  const auto pooled = [&](Pooling kind, bool with_lengths) {
    InputSpecs specs{{"hidden", {2, 3, 2}, DType::f32}};
    TensorMap inputs{{"hidden", hidden}};
    if (with_lengths) {
      specs.push_back({"lengths", {2}, DType::i32});
      inputs.emplace("lengths", lengths);
    }
    Module module =
        compile(forward_graph(specs,
                              [&](const Inputs& in) {
                                return models::pool(in["hidden"], with_lengths ? in["lengths"] : Tensor(), kind);
                              }),
                {.device = Device::cpu()});
    const HostTensor result = module.run(inputs).get("output");
    return Row(result.f32().begin(), result.f32().end());
  };
  const auto expect_row = [](const Row& computed, const Row& wanted) {
    ASSERT_EQ(computed.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(computed[i], wanted[i], 1e-4) << i;
  };
  expect_row(pooled(Pooling::cls, true), {1, -2, 7, -8});
  expect_row(pooled(Pooling::last, true), {5, -6, 9, -10});
  expect_row(pooled(Pooling::last, false), {5, -6, 99, 99});
  expect_row(pooled(Pooling::mean, true), {3, -4, 8, -9});
  expect_row(pooled(Pooling::mean, false), {3, -4, 115.0f / 3, 27});
  expect_row(pooled(Pooling::max, true), {5, -2, 9, -8});
  expect_row(pooled(Pooling::mean_sqrt, true),
             {9 / std::sqrt(3.0f), -12 / std::sqrt(3.0f), 16 / std::sqrt(2.0f), -18 / std::sqrt(2.0f)});
  expect_row(pooled(Pooling::weighted_mean, true), {22.0f / 6, -28.0f / 6, 25.0f / 3, -28.0f / 3});
}

TEST(Pooling, LeavesOutSkippedTokens) {
  const HostTensor hidden(Sizes{2, 3, 1}, std::vector<float>{1, 3, 5, 7, 9, 99});
  const auto mean = [&](bool with_lengths) {
    const TensorMap all{{"hidden", hidden},
                        {"lengths", HostTensor(Sizes{2}, std::vector<std::int32_t>{3, 2})},
                        {"skipped", HostTensor(Sizes{2}, std::vector<std::int32_t>{2, 1})}};
    Module module = compile(forward_graph(specs_of(all),
                                          [&](const Inputs& in) {
                                            const Tensor lengths = with_lengths ? in["lengths"] : Tensor();
                                            const Tensor read =
                                                models::pool(in["hidden"], lengths, Pooling::mean, in["skipped"]);
                                            return read + cast(unsqueeze(in["lengths"], {1}), DType::f32) * 0;
                                          }),
                            {.device = Device::cpu()});
    const HostTensor result = module.run(all).get("output");
    return Row(result.f32().begin(), result.f32().end());
  };
  EXPECT_EQ(mean(true), (Row{5, 9}));
  EXPECT_EQ(mean(false), (Row{5, 54}));
}

}  // namespace
}  // namespace jerboa::encoder_test
