#include "memory/chunks.h"

#include <gtest/gtest.h>
#include <sstream>

#include "text/utf8.h"

namespace jerboa::test::chunks_test {
namespace {

// A token is a word.
std::int64_t count_words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::int64_t count = 0;
  for (std::string word; in >> word;) ++count;
  return count;
}

std::vector<std::string> split(std::string_view text, memory::ChunkOptions options) {
  if (!options.count) options.count = count_words;
  std::vector<std::string> texts;
  for (const memory::Chunk& chunk : memory::split_text(text, options)) {
    EXPECT_EQ(text.substr(chunk.begin, chunk.text.size()), chunk.text);
    EXPECT_LE(options.count(chunk.text), options.tokens) << chunk.text;
    texts.emplace_back(chunk.text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Chunks, KeepSentencesWhole) {
  EXPECT_EQ(split("One two three. Four five! Six? Seven eight nine ten.", {.tokens = 5, .overlap = 0}),
            (Texts{"One two three. Four five!", "Six? Seven eight nine ten."}));
}

TEST(Chunks, RepeatTheEndOfTheOneBefore) {
  EXPECT_EQ(split("One two. Three. Four five. Six.", {.tokens = 4, .overlap = 1}),
            (Texts{"One two. Three.", "Three. Four five. Six."}));
}

TEST(Chunks, EndWithAParagraphOnceTheyAreHalfFull) {
  EXPECT_EQ(split("One two three.\n\nFour. Five.\n\nSix.", {.tokens = 6, .overlap = 0}),
            (Texts{"One two three.", "Four. Five.\n\nSix."}));
}

TEST(Chunks, SplitLongSentencesBetweenWordsAndLongWordsBetweenCharacters) {
  EXPECT_EQ(split("one two three four five", {.tokens = 2, .overlap = 0}), (Texts{"one two", "three four", "five"}));
  const auto bytes = [](std::string_view text) { return std::ssize(text); };
  std::string joined;
  for (const std::string& text : split("äöüßäöüß日本語", {.tokens = 5, .overlap = 0, .count = bytes})) {
    EXPECT_TRUE(utf8::is_valid(text));
    joined += text;
  }
  EXPECT_EQ(joined, "äöüßäöüß日本語");
}

TEST(Chunks, KnowTheFullStopsOfOtherScripts) {
  const auto characters = [](std::string_view text) { return static_cast<std::int64_t>(utf8::count(text)); };
  EXPECT_EQ(split("これは本です。それは何ですか？", {.tokens = 8, .overlap = 0, .count = characters}),
            (Texts{"これは本です。", "それは何ですか？"}));
}

TEST(Chunks, EmptyTextHasNoChunks) {
  EXPECT_TRUE(split("", {}).empty());
  EXPECT_TRUE(split(" \n\n\t ", {}).empty());
}

// Every word is in some chunk, in order, whatever the sizes are.
TEST(Chunks, LeaveNothingOut) {
  std::string text;
  for (int i = 0; i < 300; ++i)
    text += "w" + std::to_string(i) + (i % 7 == 3 ? ".\n" : i % 31 == 5 ? ".\n\n" : i % 5 == 0 ? ". " : " ");
  for (const std::int64_t tokens : {1, 3, 10, 64, 1000})
    for (const std::int64_t overlap : {0, 1, 5}) {
      int next = 0;
      for (const std::string& chunk : split(text, {.tokens = tokens, .overlap = overlap})) {
        std::istringstream in(chunk);
        for (std::string word; in >> word;) {
          const int number = std::stoi(word.substr(1));
          EXPECT_LE(number, next);
          next = std::max(next, number + 1);
        }
      }
      EXPECT_EQ(next, 300) << tokens << " " << overlap;
    }
}

}  // namespace
}  // namespace jerboa::test::chunks_test
