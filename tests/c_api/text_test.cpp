#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/c_api/jerboa_c.h>

#include "c_api/buffers.h"

// Texts through the shared library: tokenizers, decoders, chat templates, samplers and quantised weights.
namespace jerboa::c_api_test::text_test {
namespace {

using Json = nlohmann::json;

std::string bundle(const std::map<std::string, std::string>& files) {
  Json names = Json::array();
  std::vector<std::string> contents;
  for (const auto& [name, content] : files) {
    names.push_back(name);
    contents.push_back(content);
  }
  return bundle_of(names, contents);
}

// Letters, and ü as its two bytes.
std::string tokenizer_json() {
  Json vocabulary = {{"?", 0}, {"<s>", 1}, {"<0xC3>", 2}, {"<0xBC>", 3}};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary[std::string(1, letter)] = 4 + (letter - 'a');
  return Json{{"version", "1.0"},
              {"added_tokens",
               {{{"id", 1},
                 {"content", "<s>"},
                 {"special", true},
                 {"single_word", false},
                 {"lstrip", false},
                 {"rstrip", false},
                 {"normalized", false}}}},
              {"normalizer", nullptr},
              {"pre_tokenizer",
               {{"type", "Split"}, {"pattern", {{"Regex", "."}}}, {"behavior", "Isolated"}, {"invert", false}}},
              {"post_processor", nullptr},
              {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
              {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "?"}}}}
      .dump();
}

using TokenizerHandle = std::unique_ptr<jerboa_tokenizer, decltype(&jerboa_tokenizer_free)>;
using TemplateHandle = std::unique_ptr<jerboa_template, decltype(&jerboa_template_free)>;
using SamplerHandle = std::unique_ptr<jerboa_sampler, decltype(&jerboa_sampler_free)>;

TokenizerHandle make_tokenizer() {
  const std::string files = bundle({{"tokenizer.json", tokenizer_json()}});
  jerboa_tokenizer* tokenizer = nullptr;
  EXPECT_EQ(jerboa_tokenizer_create(unsigned_bytes(files), files.size(), &tokenizer), JERBOA_OK) << jerboa_last_error();
  return {tokenizer, jerboa_tokenizer_free};
}

TEST(CApiTokenizer, EncodesAndDecodes) {
  const TokenizerHandle tokenizer = make_tokenizer();
  jerboa_buffer* buffer = nullptr;
  ASSERT_EQ(jerboa_tokenizer_encode(tokenizer.get(), "abz!", 4, 0, &buffer), JERBOA_OK) << jerboa_last_error();
  const std::string bytes = taken(buffer);
  std::vector<std::int32_t> tokens(bytes.size() / sizeof(std::int32_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{4, 5, 29, 0}));

  const std::array<std::int32_t, 4> ids{1, 4, 2, 3};
  ASSERT_EQ(jerboa_tokenizer_decode(tokenizer.get(), ids.data(), ids.size(), 1, &buffer), JERBOA_OK);
  EXPECT_EQ(taken(buffer), "aü");
  ASSERT_EQ(jerboa_tokenizer_decode(tokenizer.get(), ids.data(), ids.size(), 0, &buffer), JERBOA_OK);
  EXPECT_EQ(taken(buffer), "<s>aü");
}

TEST(CApiTokenizer, ReportsErrors) {
  jerboa_tokenizer* tokenizer = nullptr;
  const auto create = [&](const std::string& files) {
    return jerboa_tokenizer_create(unsigned_bytes(files), files.size(), &tokenizer);
  };
  EXPECT_EQ(create(bundle({{"config.json", "{}"}})), JERBOA_USAGE_ERROR);
  EXPECT_STREQ(jerboa_last_error(), "the model has no tokenizer: neither tokenizer.json nor tokenizer.model");
  EXPECT_EQ(create(bundle({{"tokenizer.json", "{not JSON"}})), JERBOA_FILE_ERROR);
  EXPECT_EQ(create("not a bundle"), JERBOA_USAGE_ERROR);
  EXPECT_EQ(create(bundle({{"tokenizer.json", tokenizer_json()}}).substr(0, 100)), JERBOA_USAGE_ERROR);
  EXPECT_EQ(tokenizer, nullptr);
  jerboa_buffer* buffer = nullptr;
  EXPECT_EQ(jerboa_tokenizer_encode(nullptr, "a", 1, 0, &buffer), JERBOA_USAGE_ERROR);
  const TokenizerHandle good = make_tokenizer();
  EXPECT_EQ(jerboa_tokenizer_decode(good.get(), nullptr, 3, 0, &buffer), JERBOA_USAGE_ERROR);
  EXPECT_EQ(buffer, nullptr);
  jerboa_tokenizer_free(nullptr);
}

TEST(CApiDecoder, GivesWholeCharactersAndOutlivesItsTokenizer) {
  jerboa_decoder* decoder = nullptr;
  ASSERT_EQ(jerboa_decoder_create(make_tokenizer().get(), &decoder), JERBOA_OK) << jerboa_last_error();
  jerboa_buffer* buffer = nullptr;
  std::vector<std::string> pieces;
  for (const std::int32_t token : {4, 2, 3, 5, 2}) {
    ASSERT_EQ(jerboa_decoder_push(decoder, token, &buffer), JERBOA_OK) << jerboa_last_error();
    pieces.push_back(taken(buffer));
  }
  ASSERT_EQ(jerboa_decoder_finish(decoder, &buffer), JERBOA_OK) << jerboa_last_error();
  pieces.push_back(taken(buffer));
  jerboa_decoder_free(decoder);
  EXPECT_EQ(pieces[1], "") << "half a character";
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  EXPECT_EQ(text, "aüb\uFFFD");
  EXPECT_EQ(jerboa_decoder_push(nullptr, 4, &buffer), JERBOA_USAGE_ERROR);
}

TEST(CApiTemplate, RendersMessages) {
  const std::string files = bundle({{"tokenizer_config.json", R"({"bos_token": "<s>"})"},
                                    {"chat_template.jinja",
                                     "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
                                     "{% if add_generation_prompt %}[assistant]{{ mood }}{% endif %}"}});
  jerboa_template* made = nullptr;
  ASSERT_EQ(jerboa_template_create(unsigned_bytes(files), files.size(), &made), JERBOA_OK) << jerboa_last_error();
  const TemplateHandle chat(made, jerboa_template_free);
  const auto render = [&](const std::string& request) {
    jerboa_buffer* buffer = nullptr;
    const jerboa_status status = jerboa_template_render(chat.get(), request.data(), request.size(), &buffer);
    return status == JERBOA_OK ? taken(buffer) : jerboa_last_error();
  };
  const std::string messages = R"("messages": [{"role": "user", "content": "Hello"}])";
  EXPECT_EQ(render("{" + messages + "}"), "<s>[user]Hello[assistant]");
  EXPECT_EQ(render("{" + messages + R"(, "variables": {"mood": "!"}})"), "<s>[user]Hello[assistant]!");
  EXPECT_EQ(render("{" + messages + R"(, "add_generation_prompt": false})"), "<s>[user]Hello");
  EXPECT_NE(render("{" + messages + R"(, "tool": []})").find("the key \"tool\" is unknown"), std::string::npos);

  jerboa_template* none = nullptr;
  const std::string empty = bundle({{"tokenizer_config.json", "{}"}});
  EXPECT_EQ(jerboa_template_create(unsigned_bytes(empty), empty.size(), &none), JERBOA_USAGE_ERROR);
  EXPECT_STREQ(jerboa_last_error(), "the model has no chat template");
}

SamplerHandle make_sampler(const std::string& options, const jerboa_tokenizer* tokenizer = nullptr) {
  jerboa_sampler* sampler = nullptr;
  EXPECT_EQ(jerboa_sampler_create(options.data(), options.size(), tokenizer, &sampler), JERBOA_OK)
      << jerboa_last_error();
  return {sampler, jerboa_sampler_free};
}

std::int32_t drawn(const SamplerHandle& sampler, const std::vector<float>& logits) {
  std::int32_t token = -1;
  EXPECT_EQ(jerboa_sampler_sample(sampler.get(), logits.data(), logits.size(), &token), JERBOA_OK)
      << jerboa_last_error();
  return token;
}

TEST(CApiSampler, DrawsBySeedAndPenalisesSeenTokens) {
  const std::vector<float> logits{0, 3, 2.5F, 1};
  EXPECT_EQ(drawn(make_sampler(R"({"sampling": {"temperature": 0}})"), logits), 1);
  const SamplerHandle penalised = make_sampler(R"({"sampling": {"temperature": 0, "repetition_penalty": 2}})");
  const std::int32_t seen = 1;
  ASSERT_EQ(jerboa_sampler_observe(penalised.get(), &seen, 1), JERBOA_OK);
  EXPECT_EQ(drawn(penalised, logits), 2);

  const auto sequence = [&](const std::string& options) {
    const SamplerHandle sampler = make_sampler(options);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(drawn(sampler, logits));
    return tokens;
  };
  const std::string options = R"({"sampling": {"temperature": 1, "seed": 7}})";
  EXPECT_EQ(sequence(options), sequence(options));
  EXPECT_NE(sequence(options), sequence(R"({"sampling": {"temperature": 1, "seed": 8}})"));
}

TEST(CApiSampler, HoldsTheTextToAPattern) {
  const TokenizerHandle tokenizer = make_tokenizer();
  const SamplerHandle sampler =
      make_sampler(R"({"sampling": {"temperature": 0}, "regex": "ab", "end_tokens": [1]})", tokenizer.get());
  std::vector<float> logits(30, 0.0F);
  logits[10] = 5;  // the most likely, but not allowed
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 3; ++i) {
    tokens.push_back(drawn(sampler, logits));
    ASSERT_EQ(jerboa_sampler_observe(sampler.get(), &tokens.back(), 1), JERBOA_OK) << jerboa_last_error();
  }
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{4, 5, 1}));
}

TEST(CApiSampler, ReportsErrors) {
  jerboa_sampler* sampler = nullptr;
  const auto create = [&](const std::string& options) {
    return jerboa_sampler_create(options.data(), options.size(), nullptr, &sampler);
  };
  EXPECT_EQ(create(R"({"sampling": {"temperature": -1}})"), JERBOA_USAGE_ERROR);
  EXPECT_EQ(create(R"({"sampling": {"temprature": 1}})"), JERBOA_USAGE_ERROR);
  EXPECT_EQ(create(R"({"regex": "ab"})"), JERBOA_USAGE_ERROR) << "without a tokenizer";
  EXPECT_NE(std::string(jerboa_last_error()).find("tokenizer, which a grammar needs"), std::string::npos);
  EXPECT_EQ(sampler, nullptr);
  std::int32_t token = 0;
  EXPECT_EQ(jerboa_sampler_sample(nullptr, nullptr, 0, &token), JERBOA_USAGE_ERROR);
}

TEST(CApiQuantise, GivesWeightScalesAndMinimums) {
  std::vector<float> values(2 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 8;
  const auto quantise = [&](const std::string& type, jerboa_buffer** out) {
    return jerboa_quantise(values.data(), 2, 64, type.data(), type.size(), out);
  };
  const auto sizes_of = [](const OpenedBundle& found) {
    std::vector<std::size_t> sizes;
    for (const std::string& part : found.parts) sizes.push_back(part.size());
    return sizes;
  };
  jerboa_buffer* buffer = nullptr;
  ASSERT_EQ(quantise("int8", &buffer), JERBOA_OK) << jerboa_last_error();
  const OpenedBundle bytes = opened(taken(buffer));
  EXPECT_EQ(bytes.value, (Json{"weight", "scales"}));
  EXPECT_EQ(sizes_of(bytes), (std::vector<std::size_t>{128, 8})) << "a byte per value, and an f16 per 32 of them";
  ASSERT_EQ(quantise("int4", &buffer), JERBOA_OK) << jerboa_last_error();
  const OpenedBundle nibbles = opened(taken(buffer));
  EXPECT_EQ(nibbles.value, (Json{"weight", "scales", "mins"}));
  EXPECT_EQ(sizes_of(nibbles), (std::vector<std::size_t>{64, 8, 8}));
  buffer = nullptr;
  EXPECT_EQ(quantise("int3", &buffer), JERBOA_USAGE_ERROR);
  EXPECT_EQ(jerboa_quantise(nullptr, 2, 64, "int8", 4, &buffer), JERBOA_USAGE_ERROR);
  EXPECT_EQ(buffer, nullptr);
}

}  // namespace
}  // namespace jerboa::c_api_test::text_test
