#include <gtest/gtest.h>
#include <random>

#include <jerboa/base/error.h>
#include <jerboa/text/simple_tokenizers.h>

namespace jerboa {
namespace {

TEST(ByteTokenizer, AnyBytesComeBack) {
  const ByteTokenizer tokenizer;
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all.push_back(static_cast<char>(byte));
  const Encoding encoding = tokenizer.encode(all);
  EXPECT_EQ(encoding.ids.front(), 255);
  EXPECT_EQ(encoding.offsets.back(), (TextSpan{255, 256}));
  EXPECT_EQ(tokenizer.decode(encoding.ids, {.raw_bytes = true}), all);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("né\xFF").ids), "né\uFFFD");
}

TEST(ByteTokenizer, ItsFileGivesTheSameIds) {
  const auto loaded = Tokenizer::from_json(ByteTokenizer().to_json());
  EXPECT_EQ(loaded.vocab_size(), 256);
  EXPECT_EQ(loaded.encode("Hé \n🚀").ids, ByteTokenizer().encode("Hé \n🚀").ids);
  EXPECT_EQ(loaded.decode(loaded.encode("Hé \n🚀").ids), "Hé \n🚀");
}

TEST(CharTokenizer, NumbersTheCharactersInOrder) {
  const CharTokenizer tokenizer("banana é🚀");
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  const Encoding encoding = tokenizer.encode("ab🚀");
  EXPECT_EQ(encoding.ids, (std::vector<std::int32_t>{1, 2, 5}));
  EXPECT_EQ(encoding.offsets.back(), (TextSpan{2, 6}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "ab🚀");
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{1, 99, -1}), "a");
}

TEST(CharTokenizer, ItsFileGivesTheSameIds) {
  const CharTokenizer tokenizer("To be, or not to be\n");
  const auto loaded = Tokenizer::from_json(tokenizer.to_json());
  EXPECT_EQ(loaded.encode("not or\nTo").ids, tokenizer.encode("not or\nTo").ids);
  EXPECT_EQ(loaded.decode(loaded.encode("not or\nTo").ids), "not or\nTo");
}

TEST(CharTokenizer, NamesAnUnknownCharacter) {
  try {
    CharTokenizer("abc").encode("abé");
    FAIL() << "é has no token";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "U+00E9 \"é\" at byte 2 is not one of the tokenizer's 3 characters");
  }
  EXPECT_THROW(CharTokenizer(""), UsageError);
  EXPECT_THROW(CharTokenizer("\xFF"), UsageError);
}

}  // namespace
}  // namespace jerboa
