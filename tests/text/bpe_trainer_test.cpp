#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/text/bpe_trainer.h>
#include <jerboa/text/tokenizer.h>

namespace jerboa {
namespace {

TEST(BpeTrainer, JoinsTheMostFrequentPairFirst) {
  // hug ×10, pug ×5, pun ×12, bun ×4, hugs ×5: the example of Hugging Face's course, whose merges it works out.
  BpeTrainer trainer({.vocab_size = 260, .min_frequency = 1, .special_tokens = {"<|endoftext|>"}});
  const std::pair<const char*, int> words[] = {{"hug", 10}, {"pug", 5}, {"pun", 12}, {"bun", 4}, {"hugs", 5}};
  for (const auto& [word, count] : words)
    for (int i = 0; i < count; ++i) trainer.add(word);
  const auto json = nlohmann::json::parse(trainer.train());
  EXPECT_EQ(json.at("model").at("merges"), nlohmann::json::parse(R"([["u","g"],["u","n"],["h","ug"]])"));
  EXPECT_EQ(json.at("model").at("vocab").size(), 260U);
  EXPECT_EQ(json.at("model").at("vocab").at("<|endoftext|>"), 0);
}

TEST(BpeTrainer, WritesATokenizerThatTakesAnyText) {
  BpeTrainer trainer({.vocab_size = 400});
  const std::string text = "the cat sat on the mat, the cat sat on the hat; naïve café 🚀 ";
  for (int i = 0; i < 10; ++i) trainer.add(text);
  const auto tokenizer = Tokenizer::from_json(trainer.train());
  EXPECT_LT(tokenizer.encode(text).size(), text.size() / 2);
  for (const std::string& other : {text, std::string("Völlig anderes: 你好\n\n\t!"), std::string()})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(other).ids), other);
  EXPECT_EQ(tokenizer.encode("<|endoftext|>").ids, std::vector<std::int32_t>{0});
}

TEST(BpeTrainer, DoesNotDependOnTheOrderOfTexts) {
  BpeTrainer forth({.vocab_size = 300, .min_frequency = 1});
  BpeTrainer back({.vocab_size = 300, .min_frequency = 1});
  const std::vector<std::string> texts = {"alpha beta", "gamma delta alpha", "beta beta epsilon", "zeta eta theta"};
  for (const std::string& text : texts) forth.add(text);
  for (auto text = texts.rbegin(); text != texts.rend(); ++text) back.add(*text);
  EXPECT_EQ(forth.train(), back.train());
}

TEST(BpeTrainer, StopsWherePairsAreRare) {
  BpeTrainer trainer({.vocab_size = 1000, .min_frequency = 2});
  trainer.add("abcdef");
  EXPECT_EQ(nlohmann::json::parse(trainer.train()).at("model").at("merges").size(), 0U);
}

TEST(BpeTrainer, RefusesImpossibleVocabularies) {
  EXPECT_THROW(BpeTrainer({.vocab_size = 256}), UsageError);
  EXPECT_THROW(BpeTrainer({.vocab_size = -1}), UsageError);
  EXPECT_THROW(BpeTrainer({.special_tokens = {"a"}}), UsageError);
  EXPECT_THROW(BpeTrainer({.special_tokens = {"<x>", "<x>"}}), UsageError);
}

}  // namespace
}  // namespace jerboa
