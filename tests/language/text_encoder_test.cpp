#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <numeric>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/language/text_encoder.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// Texts to embeddings and classes: compared with transformers' on golden models, with the files of
// sentence-transformers, and with an independent evaluation of a real model.
namespace jerboa::text_encoder_test {
namespace {

using test::expect_error;
using Row = std::vector<float>;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

// A tokenizer whose tokens are the words w0, w1, …; optionally with a token before and after each text.
std::string word_tokenizer(bool framed) {
  nlohmann::json vocabulary;
  for (int i = 0; i < 256; ++i) vocabulary[fmt::format("w{}", i)] = i;
  const auto special = [](const char* id, int type) {
    return nlohmann::json{{"SpecialToken", {{"id", id}, {"type_id", type}}}};
  };
  const auto text = [](const char* id, int type) {
    return nlohmann::json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  nlohmann::json frame{{"type", "TemplateProcessing"},
                       {"single", {special("w2", 0), text("A", 0), special("w3", 0)}},
                       {"pair", {special("w2", 0), text("A", 0), special("w3", 0), text("B", 1), special("w3", 1)}},
                       {"special_tokens",
                        {{"w2", {{"id", "w2"}, {"ids", {2}}, {"tokens", {"w2"}}}},
                         {"w3", {{"id", "w3"}, {"ids", {3}}, {"tokens", {"w3"}}}}}}};
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                        {"post_processor", framed ? frame : nlohmann::json()},
                        {"decoder", nullptr},
                        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "w9"}}}}
      .dump();
}

class EncoderFolder {
 public:
  explicit EncoderFolder(const std::string& golden, bool framed = false) : golden_(goldens / golden) {
    for (const char* file : {"config.json", "model.safetensors"}) std::filesystem::copy(golden_ / file, folder_ / file);
    write("tokenizer.json", word_tokenizer(framed));
  }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    test::write_text(folder_ / file, text);
  }
  /// modules.json with the transformer and these further modules, each of which has a folder.
  void write_modules(const std::vector<std::pair<std::string, std::string>>& others) const {
    nlohmann::json list{
        {{"idx", 0}, {"name", "0"}, {"path", ""}, {"type", "sentence_transformers.models.Transformer"}}};
    for (const auto& [path, type] : others)
      list.push_back(
          {{"idx", list.size()}, {"name", path}, {"path", path}, {"type", "sentence_transformers.models." + type}});
    write("modules.json", list.dump());
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  TextEncoder open(TextEncoderOptions options = {}) const {
    options.device = Device::cpu(2);
    return TextEncoder::load(path(), options);
  }
  SafeTensors golden() const { return SafeTensors::open(golden_ / "golden.safetensors"); }
  /// The golden's texts.
  std::vector<std::string> texts() const {
    const SafeTensors file = golden();
    const auto ids = to_i32(file.view("input_ids")), mask = to_i32(file.view("attention_mask"));
    std::vector<std::string> texts(2);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (mask[i] != 0) texts[i / 11] += fmt::format("w{} ", ids[i]);
    return texts;
  }

 private:
  std::filesystem::path golden_;
  test::TempFolder folder_;
};

void expect_near(std::span<const float> computed, std::span<const float> wanted, double tolerance = 1e-5) {
  ASSERT_EQ(computed.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed[i], wanted[i], tolerance) << i;
}

Row normalised(Row row) {
  const float length = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0f));
  for (float& value : row) value /= length;
  return row;
}

std::string text_of(std::size_t words, std::size_t seed) {
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += fmt::format("w{} ", 10 + (seed * 31 + i * 7) % 140);
  return text;
}

class GoldenEmbeddings : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, GoldenEmbeddings,
                         testing::Values("bert", "distilbert", "modernbert", "mpnet", "nomic_bert", "roberta",
                                         "xlm_roberta"));

TEST_P(GoldenEmbeddings, AreTheMeansThatTransformersComputes) {
  const EncoderFolder folder(GetParam());
  auto encoder = folder.open({.weights = DType::f32});
  const Embeddings found = encoder.embed(folder.texts());
  EXPECT_EQ(found.count, 2);
  EXPECT_EQ(found.dimensions, encoder.dimensions());
  expect_near(found.values, to_f32(folder.golden().view("pooled")), 1e-4);
}

TEST(TextEncoder, MultipliesInMixedPrecisionOnRequest) {
  const EncoderFolder folder("bert");
  const Embeddings full = folder.open().embed(folder.texts());
  const Embeddings mixed = folder.open({.precision = Precision::mixed_f16}).embed(folder.texts());
  EXPECT_NE(mixed.values, full.values);
  expect_near(mixed.values, full.values, 5e-3);
}

TEST(TextEncoder, EncodesTextsOfABatchAsItDoesAlone) {
  const EncoderFolder folder("bert");
  auto encoder = folder.open();
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < 150; ++i) texts.push_back(text_of(1 + i * 17 % 60, i));
  const Embeddings all = encoder.embed(texts);
  for (const std::size_t i : {0u, 1u, 7u, 77u, 149u}) {
    const Embeddings alone = encoder.embed({texts[i]});
    expect_near(all.row(static_cast<std::int64_t>(i)), alone.row(0));
  }
  EXPECT_EQ(encoder.embed(std::vector<std::string>{}).count, 0);
}

TEST(TextEncoder, TruncatesLongTexts) {
  const EncoderFolder folder("roberta");
  auto encoder = folder.open();
  EXPECT_EQ(encoder.context(), 62);  // two positions of 64 are not used
  const std::string whole = text_of(200, 1), beginning = text_of(62, 1);
  expect_near(encoder.embed({whole}).values, encoder.embed({beginning}).values);
  auto shorter = folder.open({.context = 10});
  expect_near(shorter.embed({whole}).values, encoder.embed({text_of(10, 1)}).values);
  expect_error<UsageError>([&] { folder.open({.context = 63}); }, "supports texts of up to 62 tokens, not 63");
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 20, "do_lower_case": false})");
  EXPECT_EQ(folder.open().context(), 20);
}

TEST(TextEncoder, KeepsTheFirstDimensions) {
  const EncoderFolder folder("bert");
  auto encoder = folder.open();
  const std::string text = text_of(8, 3);
  const Embeddings plain = encoder.embed({text, text_of(4, 2)}, {.normalise = false});
  const Embeddings kept = encoder.embed({text, text_of(4, 2)}, {.dimensions = 5});
  EXPECT_EQ(kept.dimensions, 5);
  for (std::int64_t row = 0; row < 2; ++row) {
    const auto first = plain.row(row).first(5);
    expect_near(kept.row(row), normalised({first.begin(), first.end()}));
  }
  expect_error<UsageError>([&] { encoder.embed({text}, {.dimensions = 65}); }, "have 64 dimensions, not 65");
}

// The golden's hidden state of a token.
Row hidden_row(const EncoderFolder& folder, std::size_t text, std::size_t token) {
  const Row all = to_f32(folder.golden().view("hidden"));
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>((text * 11 + token) * 64);
  return {begin, begin + 64};
}

TEST(SentenceTransformers, FilesDecideThePooling) {
  const EncoderFolder folder("bert");
  folder.write_modules({{"1_Pooling", "Pooling"}});
  folder.write(
      "1_Pooling/config.json",
      R"({"word_embedding_dimension": 64, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  const Embeddings cls = folder.open().embed(folder.texts());
  expect_near(cls.row(1), hidden_row(folder, 1, 0), 1e-4);  // not normalised, as the files have no Normalize
  folder.write("1_Pooling/config.json", R"({"word_embedding_dimension": 64, "pooling_mode": "lasttoken"})");
  const Embeddings last = folder.open().embed(folder.texts());
  expect_near(last.row(0), hidden_row(folder, 0, 10), 1e-4);
  expect_near(last.row(1), hidden_row(folder, 1, 6), 1e-4);
  folder.write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true, "pooling_mode_cls_token": true,
      "pooling_mode_mean_tokens": false})");
  auto both = folder.open();
  EXPECT_EQ(both.dimensions(), 128);
  const Embeddings joined = both.embed(folder.texts());
  expect_near(joined.row(1).first(64), hidden_row(folder, 1, 0), 1e-4);
  expect_near(joined.row(1).last(64), hidden_row(folder, 1, 6), 1e-4);
}

TEST(SentenceTransformers, DenseAndNormalizeFollowThePooling) {
  const EncoderFolder folder("bert");
  folder.write_modules({{"1_Pooling", "Pooling"}, {"2_Dense", "Dense"}, {"3_Normalize", "Normalize"}});
  folder.write("1_Pooling/config.json", R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})");
  folder.write("2_Dense/config.json", R"({"in_features": 64, "out_features": 3, "bias": true,
      "activation_function": "torch.nn.modules.activation.Tanh"})");
  Row weight(3 * 64), bias{0.5f, -0.25f, 0.125f};
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = std::sin(static_cast<float>(i)) / 4;
  const std::vector<TensorView> views{view_of("linear.weight", {3, 64}, std::span<const float>(weight)),
                                      view_of("linear.bias", {3}, std::span<const float>(bias))};
  write_safetensors(folder.path() / "2_Dense" / "model.safetensors", views);
  auto encoder = folder.open();
  EXPECT_EQ(encoder.dimensions(), 3);
  const Row hidden = hidden_row(folder, 1, 0);
  Row wanted = bias;
  for (std::size_t i = 0; i < 3; ++i)
    wanted[i] = std::tanh(std::inner_product(hidden.begin(), hidden.end(),
                                             weight.begin() + static_cast<std::ptrdiff_t>(i * 64), bias[i]));
  expect_near(encoder.embed(folder.texts()).row(1), normalised(wanted), 1e-4);
  expect_near(encoder.embed(folder.texts(), {.normalise = false}).row(1), wanted, 1e-4);
}

TEST(SentenceTransformers, PromptsComeBeforeTexts) {
  const EncoderFolder folder("bert");
  folder.write("config_sentence_transformers.json", R"({"prompts": {"query": "w40 w41 ", "passage": "w50 "},
      "default_prompt_name": null, "similarity_fn_name": "dot"})");
  auto encoder = folder.open();
  EXPECT_EQ(encoder.similarity_kind(), Similarity::dot);
  EXPECT_EQ(encoder.query_prompt(), "query");
  EXPECT_EQ(encoder.document_prompt(), "passage");
  const Row plain = encoder.embed({"w60 w61"}).values, prompted = encoder.embed({"w40 w41 w60 w61"}).values;
  EXPECT_EQ(encoder.embed({"w60 w61"}, {.prompt_name = "query"}).values, prompted);
  EXPECT_EQ(encoder.embed({"w60 w61"}, {.prompt = "w40 w41 "}).values, prompted);
  EXPECT_NE(plain, prompted);
  expect_error<UsageError>([&] { encoder.embed({"w60"}, {.prompt_name = "title"}); },
                           "no prompt named \"title\"; available: \"passage\", \"query\"");
  folder.write("config_sentence_transformers.json",
               R"({"prompts": {"query": "w40 w41 "}, "default_prompt_name": "query"})");
  EXPECT_EQ(folder.open().embed({"w60 w61"}).values, prompted);
}

// The vectors of a text's tokens.
std::vector<Row> hidden_of(const EncoderFolder& folder, const std::vector<std::int32_t>& tokens) {
  const models::Config config = models::Config::open(folder.path());
  const models::Family& family = models::family_of(config);
  const auto time = std::ssize(tokens);
  Module module = compile(forward_graph({{"ids", {1, time}, DType::i32}},
                                        [&](const Inputs& in) {
                                          return family.encode(config, {.tensors = {{"ids", in["ids"]}}}).at("hidden");
                                        }),
                          {.device = Device::cpu(2)});
  module.session().upload_params(models::read_params(SafeTensors::open(folder.path()), module.ir(), family));
  const HostTensor hidden = module.run({{"ids", HostTensor(Sizes{1, time}, tokens)}}).get("output");
  const auto width = static_cast<std::size_t>(hidden.shape()[2]);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto row = hidden.f32().subspan(i * width, width);
    rows.emplace_back(row.begin(), row.end());
  }
  return rows;
}

TEST(SentenceTransformers, PromptsMayBeLeftOutOfThePooling) {
  for (const bool framed : {false, true}) {
    const EncoderFolder folder("bert", framed);
    folder.write_modules({{"1_Pooling", "Pooling"}});
    folder.write("1_Pooling/config.json", R"({"include_prompt": false})");
    auto encoder = folder.open();
    const Embeddings found = encoder.embed({"w60 w61", "w62"}, {.prompt = std::string("w40 w41 "), .normalise = false});
    // A token before the text belongs to the prompt, one after it to the text.
    const auto wanted = [&](std::vector<std::int32_t> tokens) {
      if (framed) tokens.insert(tokens.begin(), 2);
      if (framed) tokens.push_back(3);
      const std::vector<Row> all = hidden_of(folder, tokens);
      const std::size_t first = framed ? 3 : 2;
      Row mean(all[0].size());
      for (std::size_t i = first; i < all.size(); ++i)
        for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += all[i][j] / static_cast<float>(all.size() - first);
      return mean;
    };
    expect_near(found.row(0), wanted({40, 41, 60, 61}));
    expect_near(found.row(1), wanted({40, 41, 62}));
    const Row alone = encoder.embed({"w60 w61"}, {.normalise = false}).values;
    EXPECT_NE(alone, Row(found.row(0).begin(), found.row(0).end()));
  }
}

TEST(SentenceTransformers, FilesThatAreNotSupportedAreRefusedByName) {
  const EncoderFolder folder("bert");
  const auto refuse = [&](const std::string& message) { expect_error<FileError>([&] { folder.open(); }, message); };
  folder.write_modules({{"1_LSTM", "LSTM"}});
  refuse("modules of type \"sentence_transformers.models.LSTM\" are not supported");
  folder.write("modules.json", R"([{"path": "1_Pooling", "type": "sentence_transformers.models.Normalize"}])");
  refuse("there is no Transformer");
  folder.write("modules.json", R"([{"path": 1}])");
  refuse("a module has no text path");
  folder.write_modules({{"1_Pooling", "Pooling"}});
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "median"})");
  refuse("pooling_mode is \"median\", which is not supported");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false})");
  refuse("no pooling_mode is true");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true})");
  folder.write("sentence_bert_config.json", R"({"do_lower_case": true})");
  EXPECT_EQ(folder.open().embed({"w20"}).count, 1);  // both letters are unknown to this tokenizer
  folder.write("config_sentence_transformers.json", R"({"similarity_fn_name": "hamming"})");
  refuse("similarity_fn_name is \"hamming\"");
}

// A decoder's last token has seen the whole text.
TEST(TextEncoder, TakesTheLastTokenOfDecoders) {
  const EncoderFolder folder("llama");
  auto encoder = folder.open({.weights = DType::f32});
  const std::vector<std::string> texts{"w20 w21 w22 w23 w24", "w30 w31"};
  const Embeddings found = encoder.embed(texts);
  const models::Config config = models::Config::open(folder.path());
  const models::Family& family = models::family_of(config);
  const auto wanted = [&](const std::vector<std::int32_t>& tokens) {
    const auto time = std::ssize(tokens);
    Module module =
        compile(forward_graph({{"ids", {1, time}, DType::i32}},
                              [&](const Inputs& in) {
                                return family.graphs.decoder(config, {.tensors = {{"ids", in["ids"]}}}).at("hidden");
                              }),
                {.device = Device::cpu(2)});
    module.session().upload_params(models::read_params(SafeTensors::open(folder.path()), module.ir(), family));
    const HostTensor hidden = module.run({{"ids", HostTensor(Sizes{1, time}, tokens)}}).get("output");
    const auto last = hidden.f32().last(static_cast<std::size_t>(hidden.shape()[2]));
    return normalised({last.begin(), last.end()});
  };
  expect_near(found.row(0), wanted({20, 21, 22, 23, 24}));
  expect_near(found.row(1), wanted({30, 31}));
  EXPECT_FALSE(encoder.classifies());
  expect_error<UsageError>([&] { encoder.classify(texts); }, "has no classification head");
}

// The bert golden with a head that has these classes.
void add_head(const EncoderFolder& folder, const std::vector<std::string>& classes, const std::string& more = "") {
  auto config = nlohmann::json::parse(test::read_text(goldens / "bert" / "config.json"));
  config["architectures"] = {"BertForSequenceClassification"};
  for (std::size_t i = 0; i < classes.size(); ++i) config["id2label"][std::to_string(i)] = classes[i];
  if (!more.empty()) config.update(nlohmann::json::parse(more));
  folder.write("config.json", config.dump());
  const SafeTensors file = SafeTensors::open(goldens / "bert");
  std::vector<TensorView> views;
  for (const std::string& name : file.names()) {
    views.push_back(file.view(name));
    views.back().name = "bert." + name;
  }
  Row weight(classes.size() * 64), bias(classes.size());
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = std::cos(static_cast<float>(i) * 1.7f);
  const auto count = std::ssize(classes);
  views.push_back(view_of("classifier.weight", {count, 64}, std::span<const float>(weight)));
  views.push_back(view_of("classifier.bias", {count}, std::span<const float>(bias)));
  write_safetensors(folder.path() / "model.safetensors", views);
}

TEST(Classification, GivesProbabilities) {
  const EncoderFolder folder("bert", true);
  add_head(folder, {"bad", "fair", "good"}, R"({"problem_type": "regression"})");
  const std::vector<std::string> texts{text_of(5, 1), text_of(30, 2), text_of(9, 3)};
  const Embeddings logits = folder.open().classify(texts);
  add_head(folder, {"bad", "fair", "good"});
  auto encoder = folder.open();
  EXPECT_EQ(encoder.classes(), (std::vector<std::string>{"bad", "fair", "good"}));
  const Embeddings shares = encoder.classify(texts);
  add_head(folder, {"bad", "fair", "good"}, R"({"problem_type": "multi_label_classification"})");
  const Embeddings each = folder.open().classify(texts);
  for (std::int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (const float logit : logits.row(row)) sum += std::exp(logit);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(shares.row(row)[i], std::exp(logits.row(row)[i]) / sum, 1e-5);
      EXPECT_NEAR(each.row(row)[i], 1 / (1 + std::exp(-logits.row(row)[i])), 1e-5);
    }
  }
  EXPECT_EQ(encoder.embed({texts[0]}).dimensions, 64);  // the encoder below the head
  expect_error<UsageError>([&] { encoder.rerank("w20", texts); }, "has 3 classes");
}

TEST(Classification, RanksPairsByASingleScore) {
  const EncoderFolder folder("bert", true);
  add_head(folder, {"relevant"});
  auto encoder = folder.open();
  const std::string query = text_of(4, 9);
  const std::vector<std::string> documents{text_of(6, 1), text_of(20, 2), text_of(11, 3), text_of(2, 4)};
  const auto ranked = encoder.rerank(query, documents);
  ASSERT_EQ(ranked.size(), 4u);
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& document : documents) pairs.emplace_back(query, document);
  const Embeddings scores = encoder.classify_pairs(pairs);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(ranked[i].score, scores.row(ranked[i].index)[0], 1e-6);
    if (i > 0) {
      EXPECT_GE(ranked[i - 1].score, ranked[i].score);
    }
    EXPECT_TRUE(ranked[i].score > 0 && ranked[i].score < 1);
  }
  // The second text has another type than the first: one text of the same tokens gets another score.
  const Embeddings as_one = encoder.classify(std::vector<std::string>{query + " w3 " + documents[0]});
  EXPECT_GT(std::abs(as_one.values[0] - scores.values[0]), 1e-4);
  add_head(folder, {"relevant"}, R"({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}})");
  const Embeddings logits = folder.open().classify_pairs(pairs);
  EXPECT_NEAR(scores.values[0], 1 / (1 + std::exp(-logits.values[0])), 1e-5);
  add_head(folder, {"relevant"}, R"({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Softplus"})");
  expect_error<FileError>([&] { folder.open().classify_pairs(pairs); }, "sbert_ce_default_activation_function is ");
}

// Decoders' heads read the last token of each text; their files have no head for tokens.
TEST(Classification, ReadsTheLastTokenOfDecoders) {
  for (const char* golden : {"gpt2", "qwen3"}) {
    const EncoderFolder folder(golden);
    auto config = nlohmann::json::parse(test::read_text(goldens / golden / "config.json"));
    config["architectures"] = {"Qwen3ForSequenceClassification"};
    config["problem_type"] = "regression";
    config["num_labels"] = 3;
    folder.write("config.json", config.dump());
    const SafeTensors file = SafeTensors::open(goldens / golden);
    std::vector<TensorView> views;
    for (const std::string& name : file.names())
      if (name != "lm_head.weight") views.push_back(file.view(name));
    const std::int64_t width = config.value("hidden_size", config.value("n_embd", 0));
    Row head(static_cast<std::size_t>(3 * width));
    for (std::size_t i = 0; i < head.size(); ++i) head[i] = std::cos(static_cast<float>(i) * 1.7f);
    views.push_back(view_of("score.weight", {3, width}, std::span<const float>(head)));
    write_safetensors(folder.path() / "model.safetensors", views);

    auto encoder = folder.open({.weights = DType::f32});
    EXPECT_EQ(encoder.classes(), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
    const std::vector<std::string> texts{"w20 w21 w22 w23 w24", "w30 w31"};
    const Embeddings scores = encoder.classify(texts);
    const std::vector<Row> vectors{hidden_of(folder, {20, 21, 22, 23, 24}).back(), hidden_of(folder, {30, 31}).back()};
    for (std::size_t text = 0; text < 2; ++text)
      for (std::size_t i = 0; i < 3; ++i) {
        const float wanted = std::inner_product(vectors[text].begin(), vectors[text].end(),
                                                head.begin() + static_cast<std::ptrdiff_t>(i) * width, 0.0f);
        EXPECT_NEAR(scores.row(static_cast<std::int64_t>(text))[i], wanted, 1e-3 * std::max(1.0f, std::abs(wanted)));
      }
    models::quantise_folder(folder.path(), folder.path() / "int8", DType::i8);
    EXPECT_TRUE(SafeTensors::open(folder.path() / "int8").contains("score.weight"));
  }
}

TEST(Similarities, CompareVectors) {
  const Row a{3, 4}, b{4, 3}, zero{0, 0};
  EXPECT_NEAR(similarity(a, b), 24.0 / 25, 1e-6);
  EXPECT_NEAR(similarity(a, b, Similarity::dot), 24, 1e-6);
  EXPECT_NEAR(similarity(a, b, Similarity::euclidean), -std::sqrt(2.0), 1e-6);
  EXPECT_NEAR(similarity(a, b, Similarity::manhattan), -2, 1e-6);
  EXPECT_EQ(similarity(a, zero), 0);
  expect_error<UsageError>([&] { similarity(a, Row{1}); }, "embeddings of 2 and 1 dimensions cannot be compared");
  const Embeddings rows{4, 2, {1, 0, 0, 1, 2, 0, 1, 1}};
  EXPECT_EQ(nearest(rows, Row{1, 0}, 3), (std::vector<Match>{{0, 1}, {2, 1}, {3, similarity(rows.row(3), Row{1, 0})}}));
  EXPECT_EQ(nearest(rows, Row{1, 0}, 9).size(), 4u);
  EXPECT_EQ(nearest(rows, Row{1, 0}, 1, Similarity::dot)[0].index, 2);
  expect_error<UsageError>([&] { rows.row(4); }, "there is no row 4 of 4");
}

// all-MiniLM-L6-v2, which `./dev neighbours` downloads. The values were computed from the same weights in float64 by an
// independent NumPy program.
TEST(MiniLm, GivesTheEmbeddingsOfAnIndependentEvaluation) {
  const std::filesystem::path folder = JERBOA_SOURCE_DIR "/build/home/models/minilm";
  if (!std::filesystem::exists(folder / "tokenizer.json")) GTEST_SKIP() << "there is no " << folder;
  struct Known {
    std::string text;
    std::vector<std::int32_t> tokens;
    Row beginning;  // of its embedding
  };
  const std::vector<Known> known{
      {"A jerboa is a small desert rodent.",
       {101, 1037, 15333, 15185, 10441, 2003, 1037, 2235, 5532, 8469, 3372, 1012, 102},
       {0.110120f, 0.089162f, -0.053151f, 0.002173f, 0.036436f, 0.000325f, 0.004511f, -0.005390f}},
      {"The stock market fell sharply on Monday.",
       {101, 1996, 4518, 3006, 3062, 9249, 2006, 6928, 1012, 102},
       {0.045168f, -0.013663f, 0.069391f, 0.038008f, -0.017784f, 0.020957f, -0.061358f, 0.050933f}},
      {"Small hopping animals live in dry places.",
       {101, 2235, 26397, 4176, 2444, 1999, 4318, 3182, 1012, 102},
       {0.077894f, 0.050759f, 0.066249f, 0.036942f, 0.053244f, -0.038037f, 0.028771f, -0.037281f}},
      {"How do I reset my password?",
       {101, 2129, 2079, 1045, 25141, 2026, 20786, 1029, 102},
       {0.006871f, -0.063047f, -0.072047f, -0.032462f, -0.042748f, 0.070426f, 0.009019f, 0.015435f}},
      {"To change your password, open the account settings.",
       {101, 2000, 2689, 2115, 20786, 1010, 2330, 1996, 4070, 10906, 1012, 102},
       {-0.005137f, -0.035150f, -0.005382f, -0.050683f, -0.023964f, 0.065250f, -0.016193f, 0.000480f}},
  };
  const std::vector<Row> cosines{
      {1.000000f, 0.026491f, 0.445038f, 0.011802f, -0.025921f},
      {0.026491f, 1.000000f, 0.079767f, 0.056916f, 0.080185f},
      {0.445038f, 0.079767f, 1.000000f, -0.041802f, -0.069071f},
      {0.011802f, 0.056916f, -0.041802f, 1.000000f, 0.697339f},
      {-0.025921f, 0.080185f, -0.069071f, 0.697339f, 1.000000f},
  };
  std::vector<std::string> texts;
  for (const Known& item : known) texts.push_back(item.text);
  for (const auto weights : {std::optional<DType>(), std::optional(DType::f32)}) {
    auto encoder = TextEncoder::load(folder, {.device = Device::cpu(2), .weights = weights});
    for (const Known& item : known) EXPECT_EQ(encoder.tokenizer().encode(item.text).ids, item.tokens);
    const Embeddings found = encoder.embed(texts);
    EXPECT_EQ(found.dimensions, 384);
    for (std::int64_t i = 0; i < found.count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      expect_near(found.row(i).first(8), known[at].beginning, 1e-5);
      for (std::int64_t j = 0; j < found.count; ++j)
        EXPECT_NEAR(similarity(found.row(i), found.row(j)), cosines[at][static_cast<std::size_t>(j)], 1e-5);
    }
    EXPECT_EQ(nearest(found, found.row(0), 2)[1].index, 2);  // two about small animals
    EXPECT_EQ(nearest(found, found.row(3), 2)[1].index, 4);  // two about passwords
  }
}

}  // namespace
}  // namespace jerboa::text_encoder_test
