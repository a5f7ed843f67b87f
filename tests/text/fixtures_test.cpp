// The strings and ids that llama.cpp tests its tokenizers with, read in place from ../shared/tokenizers.
#include <gtest/gtest.h>
#include <sstream>

#include "text/real_tokenizers.h"

namespace jerboa {
namespace {

struct Fixture {
  const char* strings;
  const char* tokenizer;
};
void PrintTo(const Fixture& fixture, std::ostream* out) { *out << fixture.tokenizer; }

class Fixtures : public testing::TestWithParam<Fixture> {};

TEST_P(Fixtures, EveryLineIsExact) {
  const auto folder = test::source_dir().parent_path() / "shared/tokenizers";
  const std::string strings = test::read_file(folder / (std::string(GetParam().strings) + ".inp"));
  std::istringstream lines(test::read_file(folder / (std::string(GetParam().strings) + ".out")));
  const auto tokenizer = Tokenizer::load(test::real_tokenizer(GetParam().tokenizer));

  constexpr std::string_view separator = "\n__ggml_vocab_test__\n";
  int count = 0;
  for (std::size_t at = 0; at < strings.size(); ++count) {
    const std::size_t end = strings.find(separator, at);
    ASSERT_NE(end, std::string::npos);
    const std::string text = strings.substr(at, end - at);
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    const std::vector<std::int32_t> ids(std::istream_iterator<std::int32_t>(numbers), {});
    EXPECT_EQ(tokenizer.encode(text, {.add_special = false}).ids, ids) << text;
    at = end + separator.size();
  }
  EXPECT_GE(count, 40);
}

INSTANTIATE_TEST_SUITE_P(Real, Fixtures,
                         testing::Values(Fixture{"gpt-2", "gpt2"}, Fixture{"llama-bpe", "llama3"},
                                         Fixture{"llama-bpe", "llama3_2"}, Fixture{"qwen2", "qwen2_5"},
                                         Fixture{"qwen2", "qwen3"}, Fixture{"llama-spm", "llama2"},
                                         Fixture{"phi-3", "llama2"}, Fixture{"bert-bge", "bert"}));

}  // namespace
}  // namespace jerboa
