#include "steps/generation_config.h"

#include <gtest/gtest.h>

#include <jerboa/base/error.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

const models::Config model = models::Config::parse(R"({"eos_token_id": 7, "vocab_size": 10})");

detail::GenerationConfig read(const std::string& text) {
  const test::TempFolder folder;
  test::write_text(folder / "generation_config.json", text);
  return detail::read_generation_config(folder.path(), model);
}

TEST(GenerationConfig, ListsEndTokens) {
  EXPECT_EQ(read(R"({"eos_token_id": 3})").end_tokens, std::vector<int>{3});
  EXPECT_EQ(read(R"({"eos_token_id": [3, 9]})").end_tokens, (std::vector<int>{3, 9}));
  EXPECT_EQ(read("{}").end_tokens, std::vector<int>{7});
}

TEST(GenerationConfig, SaysHowTokensAreChosen) {
  const SamplerOptions free =
      read(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1})")
          .sampling;
  EXPECT_FLOAT_EQ(free.temperature, 0.6F);
  EXPECT_EQ(free.top_k, 20);
  EXPECT_FLOAT_EQ(free.top_p, 0.95F);
  EXPECT_FLOAT_EQ(free.repetition_penalty, 1.1F);
  EXPECT_EQ(read(R"({"do_sample": true})").sampling.top_k, 50);
  EXPECT_EQ(read(R"({"eos_token_id": 3})").sampling.temperature, 0);
  EXPECT_EQ(read(R"({"do_sample": false, "temperature": 0.6})").sampling.temperature, 0);
}

TEST(GenerationConfig, MayBeMissing) {
  const test::TempFolder folder;
  const auto config = detail::read_generation_config(folder.path(), model);
  EXPECT_EQ(config.end_tokens, std::vector<int>{7});
  EXPECT_EQ(config.sampling.temperature, 1);
  EXPECT_TRUE(
      detail::read_generation_config(folder.path(), models::Config::parse(R"({"vocab_size": 10})")).end_tokens.empty());
}

TEST(GenerationConfig, ReportsErrors) {
  test::expect_error<FileError>([] { read(R"({"eos_token_id": "x"})"); },
                                "generation_config.json: eos_token_id is \"x\", which is not a whole number or a list");
  const auto refuse = [](const std::string& text, const std::string& message) {
    test::expect_error<FileError>([&] { read(text); }, "generation_config.json: " + message);
  };
  refuse(R"({"eos_token_id": 10})", "eos_token_id is 10, which names token 10, but the model has tokens 0 to 9");
  refuse(R"({"eos_token_id": [1, -1]})", "eos_token_id is [1,-1], which names token -1");
  refuse(R"({"eos_token_id": 18446744073709551615})", "eos_token_id is 18446744073709551615, which is not a whole");
  refuse(R"({"temperature": -0.5})", "temperature is -0.5, which is not from 0 to 1000");
  refuse(R"({"temperature": 1e300})", "temperature is 1e+300, which is not from 0 to 1000");
  refuse(R"({"top_k": -1})", "top_k is -1, which is below zero");
  refuse(R"({"top_p": 0})", "top_p is 0, which is not above 0 and at most 1");
  refuse(R"({"top_p": 1e-300})", "top_p is 1e-300, which is not above 0 and at most 1");
  refuse(R"({"top_p": 1.5})", "top_p is 1.5, which is not above 0 and at most 1");
  refuse(R"({"do_sample": true, "min_p": 2})", "min_p is 2, which is not from 0 to 1");
  refuse(R"({"do_sample": true, "repetition_penalty": 0})", "repetition_penalty is 0, which is not above 0");
  refuse(R"({"do_sample": true, "do_sample": false})", "the key \"do_sample\" occurs twice");
  refuse("{", "not valid JSON, at byte 1");
}

}  // namespace
}  // namespace jerboa
