#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>
#include <jerboa/language/text_encoder.h>

#include "language/model_folder.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Pretrained models from folders to text: greedy tokens compared with those of transformers, and the loop around them.
namespace jerboa::language_model_test {
namespace {

using test::expect_error;
using test::greedy;
using test::ModelFolder;
using test::Tokens;

TEST(LanguageModel, ContinuesAsTransformersDoes) {
  for (const std::string& family : test::all_decoder_goldens())
    for (const int chunk : {1, 5, 128}) {
      SCOPED_TRACE(fmt::format("{} in chunks of {}", family, chunk));
      const ModelFolder folder(family);
      LanguageModel model = folder.open({.chunk = chunk});
      const Tokens wanted = folder.continuation();
      EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, wanted);
    }
}

double rms(const std::vector<float>& values) {
  double total = 0;
  for (const float value : values) total += static_cast<double>(value) * value;
  return std::sqrt(total / static_cast<double>(values.size()));
}

// The relative error of logits compared with those of f32 weights. With int8 or int4 weights, the CPU also rounds
// activations to 8 bits.
TEST(LanguageModel, KeepsWeightsInFewerBits) {
  for (const char* family : {"llama", "qwen3", "phi3", "gemma2", "gpt2"}) {
    const ModelFolder folder(family);
    const std::vector<float> wanted = folder.open({.weights = DType::f32}).next_logits(folder.prompt());
    for (const auto& [type, most] : {std::pair(DType::f16, 1e-3), std::pair(DType::bf16, 1e-2),
                                     std::pair(DType::i8, 4e-2), std::pair(DType::i4, 0.4)}) {
      std::vector<float> error = folder.open({.weights = type}).next_logits(folder.prompt());
      for (std::size_t i = 0; i < error.size(); ++i) error[i] -= wanted[i];
      EXPECT_LT(rms(error), most * rms(wanted)) << family << " in " << name(type);
      if (type == DType::i4) {
        EXPECT_GT(rms(error), 1e-3 * rms(wanted)) << family;
      }
    }
  }
}

// Prompts in mixed precision: the same graph with products in f16, over the same weights and the same cache.
TEST(LanguageModel, FeedsPromptsInMixedPrecision) {
  for (const char* family : {"llama", "qwen3", "gemma2"}) {
    const ModelFolder folder(family);
    const Tokens prompt = folder.prompt();
    const LanguageModelOptions full{.weights = DType::f16, .precision = Precision::full};
    const LanguageModelOptions mixed{.weights = DType::f16, .precision = Precision::mixed_f16};
    const std::vector<float> wanted = folder.open(full).next_logits(prompt);
    LanguageModel model = folder.open(mixed);
    std::vector<float> error = model.next_logits(prompt);
    EXPECT_NE(error, wanted) << family;
    for (std::size_t i = 0; i < error.size(); ++i) error[i] -= wanted[i];
    EXPECT_LT(rms(error), 5e-3 * rms(wanted)) << family;
    // The token after it, in full precision over that cache.
    Tokens longer = prompt;
    longer.push_back(7);
    const std::vector<float> next = folder.open(full).next_logits(longer);
    error = model.next_logits(longer);
    for (std::size_t i = 0; i < error.size(); ++i) error[i] -= next[i];
    EXPECT_LT(rms(error), 5e-3 * rms(next)) << family;
  }
}

// f16 need not hold what a model computes whose weights are in bf16, so that is a user's choice.
TEST(LanguageModel, FeedsPromptsToWeightsInBf16InMixedPrecisionOnRequest) {
  const ModelFolder folder("qwen2");
  const std::vector<float> wanted = folder.open({.precision = Precision::full}).next_logits(folder.prompt());
  EXPECT_EQ(folder.open().next_logits(folder.prompt()), wanted);
  std::vector<float> error = folder.open({.precision = Precision::mixed_f16}).next_logits(folder.prompt());
  EXPECT_NE(error, wanted);
  for (std::size_t i = 0; i < error.size(); ++i) error[i] -= wanted[i];
  EXPECT_LT(rms(error), 5e-3 * rms(wanted));
}

TEST(LanguageModel, RefusesMixedPrecisionForWeightsThatF16DoesNotHold) {
  const ModelFolder folder("qwen2");
  const std::string large = "model.layers.0.mlp.up_proj.weight";
  const SafeTensors source = SafeTensors::open(folder.path());
  std::vector<TensorView> tensors;
  std::vector<std::byte> values;
  for (const std::string& name : source.names()) {
    tensors.push_back(source.view(name));
    if (name != large) continue;
    values.assign(tensors.back().bytes.begin(), tensors.back().bytes.end());
    values[3] = std::byte{0xc7};  // -65536 in bf16
    values[2] = std::byte{0x80};
    tensors.back().bytes = values;
  }
  const ModelFolder other("qwen2");
  write_safetensors(other.path() / "model.safetensors", tensors, source.metadata());
  expect_error<UsageError>([&] { other.open({.precision = Precision::mixed_f16}); },
                           large + " holds larger numbers than f16");
  EXPECT_NO_THROW(other.open({.precision = Precision::full}));
}

TEST(LanguageModel, TakesWeightsAsTheFileHasThem) {
  const auto type_of = [](const char* family) {
    const ModelFolder folder(family);
    LanguageModel model = folder.open();
    return model.session().download_param("model.embed_tokens.weight").dtype();
  };
  EXPECT_EQ(type_of("llama"), DType::f32);
  EXPECT_EQ(type_of("mistral"), DType::f16);
  EXPECT_EQ(type_of("qwen2"), DType::bf16);
}

TEST(LanguageModel, CountsEachWeightOnce) {
  const ModelFolder folder("qwen2");  // with tied embeddings
  const std::int64_t wanted = folder.open({.weights = DType::f32}).parameters();
  for (const DType type : {DType::bf16, DType::i8}) EXPECT_EQ(folder.open({.weights = type}).parameters(), wanted);
}

TEST(LanguageModel, ReusesItsCache) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.block = 8}), fresh = folder.open();
  const Tokens prompt = folder.prompt();
  const Generation first = model.continue_tokens(prompt, greedy(6));
  EXPECT_EQ(first.reused, 0);
  Tokens longer = prompt;
  longer.insert(longer.end(), first.tokens.begin(), first.tokens.end());
  longer.push_back(17);
  const Generation second = model.continue_tokens(longer, greedy(6));
  EXPECT_EQ(second.reused, (std::ssize(prompt) + 5) / 8 * 8);  // in whole blocks
  EXPECT_EQ(second.tokens, fresh.continue_tokens(longer, greedy(6)).tokens);
  // Another text with the same beginning, and one without.
  const Tokens other(prompt.begin(), prompt.begin() + 4);
  EXPECT_EQ(model.continue_tokens(other, greedy(6)).tokens, folder.open().continue_tokens(other, greedy(6)).tokens);
  EXPECT_EQ(model.continue_tokens(prompt, greedy(6)).tokens, first.tokens);
}

TEST(LanguageModel, GivesPiecesThatAreTheText) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open();
  std::string pieces;
  const Generation result = model.generate("Hello", {.max_tokens = 40, .sampling = SamplerOptions{.seed = 3}},
                                           [&](std::string_view piece) { pieces += piece; });
  EXPECT_EQ(pieces, result.text);
  const std::string all = model.tokenizer().decode([&] {
    Tokens tokens = model.tokenizer().encode("Hello").ids;
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    return tokens;
  }());
  EXPECT_EQ("Hello" + result.text, all);
  EXPECT_EQ(result.prompt_tokens, 5);
  EXPECT_EQ(model.generate("Hello", {.max_tokens = 40, .sampling = SamplerOptions{.seed = 3}}).text, result.text);
  EXPECT_NE(model.generate("Hello", {.max_tokens = 40, .sampling = SamplerOptions{.seed = 4}}).text, result.text);
}

// An untrusted folder is refused quickly, before anything that its config.json asks for is allocated.
TEST(LanguageModel, RefusesAConfigThatDoesNotFitTheWeights) {
  const ModelFolder folder("llama");
  const auto config = nlohmann::json::parse(test::read_text(folder.path() / "config.json"));
  const auto refuse = [&](const nlohmann::json& change, const std::string& message) {
    auto changed = config;
    changed.update(change);
    folder.write("config.json", changed.dump());
    const auto start = std::chrono::steady_clock::now();
    expect_error<FileError>([&] { folder.open(); }, message);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << message;
  };
  refuse({{"num_hidden_layers", 2147483647}}, "num_hidden_layers is 2147483647, which is not from 1 to 4096");
  refuse({{"num_hidden_layers", 61}}, "num_hidden_layers is 61, but ");
  refuse({{"vocab_size", 10'000'000}}, "embed_tokens.weight is [256, 64], but config.json requires [10000000, 64]");
  refuse({{"intermediate_size", 100'000'000}}, "config.json requires [100000000, 64]");
  refuse({{"num_key_value_heads", 4}}, "k_proj.weight is [32, 64], but config.json requires [64, 64]");
  refuse({{"max_position_embeddings", 0}}, "max_position_embeddings is 0");
  refuse({{"rope_theta", 0}, {"rope_parameters", nullptr}}, "rope_theta is 0, which is not above 1");
  refuse({{"eos_token_id", 256}}, "eos_token_id is 256, which names token 256, but the model has tokens 0 to 255");
  folder.write("config.json", config.dump());
  folder.write("generation_config.json", R"({"eos_token_id": [2, 5000]})");
  expect_error<FileError>([&] { folder.open(); },
                          "generation_config.json: eos_token_id is [2,5000], which names token");
}

TEST(LanguageModel, StopsForEachReason) {
  const ModelFolder folder("llama");
  const Tokens prompt = folder.prompt(), wanted = folder.continuation();
  LanguageModel model = folder.open({.context = 32});
  EXPECT_EQ(model.continue_tokens(prompt, greedy(3)).reason, StopReason::length);
  // 21 of 32 tokens are the prompt's; the last drawn token is not fed back.
  const Generation full = model.continue_tokens(prompt, greedy(100));
  EXPECT_EQ(full.reason, StopReason::context);
  EXPECT_EQ(full.tokens, Tokens(wanted.begin(), wanted.begin() + 12));

  folder.write("generation_config.json", fmt::format(R"({{"eos_token_id": [{}]}})", wanted[4]));
  LanguageModel ending = folder.open();
  const Generation ended = ending.continue_tokens(prompt, greedy(100));
  EXPECT_EQ(ended.reason, StopReason::end);
  EXPECT_EQ(ended.tokens, Tokens(wanted.begin(), std::find(wanted.begin(), wanted.end(), wanted[4])));

  const std::string text = model.continue_tokens(prompt, greedy(8)).text;
  GenerateOptions options = greedy(8);
  options.stop = {text.substr(3, 2)};
  const Generation stopped = model.continue_tokens(prompt, options);
  EXPECT_EQ(stopped.reason, StopReason::stop);
  EXPECT_EQ(stopped.text, text.substr(0, text.find(options.stop[0])));
}

TEST(LanguageModel, AnswersMessagesByItsTemplate) {
  const ModelFolder folder("llama");
  LanguageModel plain = folder.open();
  EXPECT_FALSE(plain.has_chat_template());
  expect_error<UsageError>([&] { plain.chat("Hi"); }, "has no chat template");
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
               "{% if add_generation_prompt %}assistant:{% endif %}");
  LanguageModel model = folder.open();
  EXPECT_TRUE(model.has_chat_template());
  const Tokens wanted = plain.generate("user: Hi\nassistant:", greedy(8)).tokens;
  EXPECT_EQ(model.chat("Hi", greedy(8)).tokens, wanted);
  EXPECT_EQ(model.answer(JsonValue::parse(R"([{"role": "user", "content": "Hi"}])"), greedy(8)).tokens, wanted);
  EXPECT_EQ(model.answer({{"user", "Hi"}}, greedy(8)).tokens, wanted);
}

TEST(LanguageModel, KeepsTheConversation) {
  const ModelFolder folder("llama");
  folder.write("chat_template.jinja", "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>");
  LanguageModel model = folder.open();
  const std::string first = model.chat("Hi", greedy(4)).text;
  const Tokens second = model.chat("So?", greedy(4)).tokens;
  EXPECT_EQ(second, model.generate("<user>Hi<assistant>" + first + "<user>So?<assistant>", greedy(4)).tokens);
  EXPECT_EQ(model.conversation().size(), 4u);
  // A message that cannot be answered is not kept.
  expect_error<UsageError>([&] { model.chat(std::string(200, 'a'), greedy(4)); }, "tokens exceed the context");
  EXPECT_EQ(model.conversation().size(), 4u);
  model.reset();
  EXPECT_EQ(model.chat("Hi", greedy(4)).text, first);
  model.reset();
  model.conversation().push_back({"system", "Be brief."});
  const Tokens wanted = model.generate("<system>Be brief.<user>Hi<assistant>", greedy(4)).tokens;
  EXPECT_EQ(model.chat("Hi", greedy(4)).tokens, wanted);
}

TEST(LanguageModel, GivesLogitsAfterEveryToken) {
  const ModelFolder folder("qwen3");
  LanguageModel model = folder.open({.chunk = 8});
  const Tokens prompt = folder.prompt();
  const HostTensor all = model.logits(prompt);
  ASSERT_EQ(all.shape(), (Sizes{std::ssize(prompt), 256}));
  for (const std::size_t length : {std::size_t{1}, std::size_t{9}, prompt.size()}) {
    const std::vector<float> last = model.next_logits(std::span(prompt).first(length));
    for (std::size_t i = 0; i < last.size(); ++i)
      EXPECT_NEAR(all.f32()[(length - 1) * 256 + i], last[i], 2e-4) << length;
  }
  EXPECT_EQ(model.statistics().used_blocks, model.statistics().cached_blocks) << "blocks are given back";
}

// A model with random weights produces noise, but only noise that the grammar allows.
TEST(LanguageModel, HoldsTextsToAGrammar) {
  const ModelFolder folder("llama");
  folder.write("generation_config.json", R"({"eos_token_id": 2, "do_sample": true})");
  LanguageModel model = folder.open();
  const auto written = [&](std::shared_ptr<const Grammar> grammar, std::uint64_t seed) {
    return model.generate("Hello",
                          {.max_tokens = 60, .sampling = SamplerOptions{.seed = seed}, .grammar = std::move(grammar)});
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Generation date = written(compile_regex("[0-9]{4}-[0-9]{2}"), seed);
    EXPECT_EQ(date.text.size(), 7u) << date.text;
    EXPECT_EQ(date.text[4], '-') << date.text;
    EXPECT_EQ(date.reason, StopReason::end);
    const auto schema = compile_json_schema_text(
        R"({"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"]})");
    const auto json = nlohmann::json::parse(written(schema, seed).text);
    EXPECT_TRUE(json.at("age").is_number_integer());
    EXPECT_LE(json.at("age").get<int>(), 99);
  }
}

TEST(LanguageModel, ReportsErrors) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.context = 16});
  expect_error<UsageError>([&] { model.generate(std::string(17, 'a')); },
                           "17 tokens exceed the context of 16; shorten the text");
  expect_error<UsageError>([&] { model.generate(""); }, "the prompt is empty");
  expect_error<UsageError>([&] { model.continue_tokens(Tokens{256}); }, "there is no token 256; the model has 256");
  expect_error<UsageError>([&] { folder.open({.context = 1000}); }, "supports at most 128 tokens");
  expect_error<UsageError>([&] { folder.open({.chunk = -1}); }, "chunk must be at least 1, or 0");
  expect_error<UsageError>([&] { folder.open({.weights = DType::i32}); }, "f16, bf16, int8 or int4, not i32");
  expect_error<FileError>([] { LanguageModel::load("no/such/folder"); }, "no/such/folder");
  std::filesystem::remove(folder.path() / "tokenizer.json");
  expect_error<FileError>([&] { folder.open(); }, folder.path().string());
}

// A real model, if it is available.
TEST(LanguageModel, TellsTheStoryThatItsMakersSaw) {
  const std::filesystem::path stories = JERBOA_SOURCE_DIR "/../shared/models/stories260K";
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "stories260K is not here";
  const auto reference = nlohmann::json::parse(test::read_text(stories / "reference.json"));
  LanguageModel model = LanguageModel::load(stories, {.device = Device::cpu(2)});
  const Generation result = model.generate(reference["prompt"].get<std::string>(),
                                           greedy(static_cast<int>(reference["generated_ids"].size())));
  EXPECT_EQ(result.tokens, reference["generated_ids"].get<Tokens>());
  EXPECT_EQ(result.text, reference["generated_text"].get<std::string>());
}

// The vectors of a TextEncoder that reads the same folder, in chunks of any size.
TEST(LanguageModel, EmbedsTexts) {
  for (const char* family : {"llama", "mamba2"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model = folder.open({.chunk = 5});
    const std::string text = "What follows from it?";
    const std::vector<float> found = model.embed(text);
    if (std::string_view(family) == "llama") {
      TextEncoder encoder = TextEncoder::load(folder.path(), {.device = Device::cpu(2)});
      const Embeddings wanted = encoder.embed({text}, {.normalise = false});
      ASSERT_EQ(std::ssize(found), wanted.dimensions);
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted.row(0)[i], 1e-4) << i;
    }
    // The mean is that of what every token is when it is the last.
    const std::vector<std::int32_t> tokens = model.encode_prompt(text);
    std::vector<double> mean(found.size());
    for (std::size_t count = 1; count <= tokens.size(); ++count) {
      const std::vector<float> last = model.embed(std::span(tokens).first(count));
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += last[i] / static_cast<double>(tokens.size());
    }
    const std::vector<float> pooled = model.embed(tokens, models::Pooling::mean);
    for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(pooled[i], mean[i], 1e-4) << i;
    expect_error<UsageError>([&] { model.embed(tokens, models::Pooling::max); }, "the last token or the mean of all");
    expect_error<UsageError>([&] { model.embed(std::vector<std::int32_t>()); }, "at least one token");
  }
}

}  // namespace
}  // namespace jerboa::language_model_test
