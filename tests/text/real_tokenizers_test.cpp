#include "text/real_tokenizers.h"

#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "text/pre_tokenizer.h"
#include "text/sentencepiece.h"

namespace jerboa {
namespace {

const char* const tokenizers[] = {"gpt2",   "llama3",   "llama3_2", "qwen2_5", "qwen3", "gemma3", "bert",
                                  "cl100k", "deepseek", "llama2",   "mistral", "o200k", "t5"};

class RealTokenizers : public testing::TestWithParam<const char*> {
 protected:
  const Tokenizer tokenizer = Tokenizer::load(test::real_tokenizer(GetParam()));
  std::mt19937 random{5};
};

TEST_P(RealTokenizers, StreamingEqualsDecodingAtOnce) {
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int32_t> ids;
    if (round % 2 == 0) {
      ids = tokenizer.encode(test::random_text(random, 20)).ids;
    } else {
      for (int i = 0; i < 40; ++i) ids.push_back(static_cast<std::int32_t>(random() % (tokenizer.vocab_size() + 10)));
    }
    for (const bool skip_special : {false, true}) {
      StreamDecoder stream(tokenizer, {.skip_special = skip_special});
      std::string text;
      for (const auto id : ids) {
        const std::string piece = stream.push(id);
        EXPECT_TRUE(utf8::is_valid(piece));
        text += piece;
      }
      text += stream.finish();
      EXPECT_EQ(text, tokenizer.decode(ids, {.skip_special = skip_special}));
    }
  }
}

TEST_P(RealTokenizers, OffsetsCoverTheText) {
  for (int round = 0; round < 100; ++round) {
    const std::string text = test::random_text(random, 20);
    const Encoding encoding = tokenizer.encode(text, {.add_special = false});
    ASSERT_EQ(encoding.offsets.size(), encoding.ids.size());
    std::uint32_t begin = 0;
    for (const TextSpan span : encoding.offsets) {
      EXPECT_LE(begin, span.begin);
      EXPECT_LE(span.begin, span.end);
      ASSERT_LE(span.end, text.size());
      EXPECT_TRUE(utf8::is_valid(std::string_view(text).substr(span.begin, span.end - span.begin)));
      begin = span.begin;
    }
  }
}

TEST_P(RealTokenizers, BatchesGiveWhatSingleTextsDo) {
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(test::random_text(random, 300));
  const auto batch = tokenizer.encode_batch(texts);
  ASSERT_EQ(batch.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(batch[i].ids, tokenizer.encode(texts[i]).ids);
}

TEST_P(RealTokenizers, TokensAndIdsFindEachOther) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); id += 101) {
    if (const auto token = tokenizer.id_to_token(id)) {
      EXPECT_EQ(tokenizer.token_to_id(*token), id);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Real, RealTokenizers, testing::ValuesIn(tokenizers));

// Those that do not normalize.
class LosslessTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(LosslessTokenizers, TextComesBack) {
  const auto tokenizer = Tokenizer::load(test::real_tokenizer(GetParam()));
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const std::string text = replace_all(test::random_text(random, 20), "<s>", "");  // Llama 2 writes it with a space
    const auto ids = tokenizer.encode(text, {.add_special = false}).ids;
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = false}), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Real, LosslessTokenizers,
                         testing::Values("gpt2", "llama3", "llama3_2", "gemma3", "cl100k", "deepseek", "llama2",
                                         "o200k"));

class ByteLevelTokenizers : public testing::TestWithParam<const char*> {};

TEST_P(ByteLevelTokenizers, AnyBytesComeBack) {
  const auto tokenizer = Tokenizer::load(test::real_tokenizer(GetParam()));
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (std::size_t i = random() % 60; i > 0; --i) bytes.push_back(static_cast<char>(random()));
    const auto ids = tokenizer.encode(bytes, {.add_special = false}).ids;
    EXPECT_EQ(tokenizer.decode(ids, {.skip_special = false, .raw_bytes = true}), bytes);
  }
}

TEST_P(ByteLevelTokenizers, ScannersSplitAsTheirRegularExpressionsDo) {
  const auto json = nlohmann::json::parse(test::read_file(test::real_tokenizer(GetParam())));
  const JsonView view(json.at("pre_tokenizer"), "pre_tokenizer");
  PreTokenizer scanned = PreTokenizer::parse(view);
  PreTokenizer matched = PreTokenizer::parse(view);
  scanned.leave_bytes();
  matched.leave_bytes();
  matched.forget_scanners();
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string text = test::random_text(random, 15);
    if (round % 4 == 0) text.insert(random() % (text.size() + 1), 1, static_cast<char>(random()));
    AlignedText first(text);
    AlignedText second(text);
    Words a{first, {{0, static_cast<std::uint32_t>(text.size())}}, true};
    Words b{second, {{0, static_cast<std::uint32_t>(text.size())}}, true};
    scanned.apply(a);
    matched.apply(b);
    ASSERT_EQ(a.ranges, b.ranges) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Real, ByteLevelTokenizers, testing::Values("gpt2", "llama3", "cl100k", "o200k", "deepseek"));

TEST(RealEncodings, AreWhatTransformersGives) {
  const auto all = nlohmann::json::parse(test::read_file(test::source_dir() / "tests/data/tokenizer_encodings.json"));
  ASSERT_EQ(all.size(), 4U);
  for (const auto& [name, encodings] : all.items()) {
    const auto tokenizer = Tokenizer::load(test::real_tokenizer(name));
    for (const auto& encoding : encodings) {
      const auto text = encoding.at("text").get<std::string>();
      EXPECT_EQ(tokenizer.encode(text, {.add_special = false}).ids, encoding.at("ids").get<std::vector<std::int32_t>>())
          << name << ": " << text;
      EXPECT_EQ(tokenizer.encode(text).ids, encoding.at("ids_special").get<std::vector<std::int32_t>>())
          << name << ": " << text;
    }
  }
}

TEST(RealTokenizer, QwenNormalizesToComposedForm) {
  const auto tokenizer = Tokenizer::load(test::real_tokenizer("qwen3"));
  const Encoding encoding = tokenizer.encode("caf\u0065\u0301!");
  EXPECT_EQ(tokenizer.decode(encoding.ids), "café!");
  EXPECT_EQ(encoding.offsets.back(), (TextSpan{6, 7}));
}

TEST(RealTokenizer, BertWritesSpacesAndLowerCase) {
  const auto tokenizer = Tokenizer::load(test::real_tokenizer("bert"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Hello,  World!").ids), "hello, world!");
  const Encoding pair = tokenizer.encode_pair("one", "two");
  EXPECT_EQ(tokenizer.decode(pair.ids, {.skip_special = false}), "[CLS] one [SEP] two [SEP]");
  EXPECT_EQ(pair.type_ids, (std::vector<std::int32_t>{0, 0, 0, 1, 1}));
}

// Llama 2's pieces in the formats of llama2.c and sentencepiece, with scores in the order of the merges.
class LlamaFormats : public testing::Test {
 protected:
  LlamaFormats() {
    const auto json = nlohmann::json::parse(test::read_file(test::real_tokenizer("llama2")));
    pieces.resize(json.at("model").at("vocab").size());
    for (const auto& [text, id] : json.at("model").at("vocab").items()) pieces.at(id.get<std::size_t>()) = text;
    float score = 0;
    for (const auto& merge : json.at("model").at("merges"))
      scores.emplace(replace_all(merge.get<std::string>(), " ", ""), --score);
  }
  void expect_same(const Tokenizer& other) {
    std::mt19937 random(13);
    for (int round = 0; round < 300; ++round) {
      const std::string text = test::random_text(random, 20);
      if (text.find("<s>") != std::string::npos) continue;
      const auto ids = json_tokenizer.encode(text).ids;
      EXPECT_EQ(other.encode(text).ids, ids) << text;
      EXPECT_EQ(other.decode(ids), json_tokenizer.decode(ids));
    }
  }
  const Tokenizer json_tokenizer = Tokenizer::load(test::real_tokenizer("llama2"));
  float score(std::size_t id) const {
    const auto found = scores.find(pieces[id]);
    return found == scores.end() ? 0 : found->second;
  }
  std::vector<std::string> pieces;
  std::map<std::string, float> scores;
};

template <typename T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

TEST_F(LlamaFormats, Llama2c) {
  std::string file = raw<std::int32_t>(27);
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const std::string text = replace_all(pieces[id], "\u2581", " ");
    file += raw(score(id)) + raw(static_cast<std::int32_t>(text.size())) + text;
  }
  expect_same(load_llama2c(file, "tokenizer.bin"));
  for (const std::size_t cut : {3UL, 9UL, 100UL, file.size() - 1})
    EXPECT_THROW(load_llama2c(file.substr(0, cut), "tokenizer.bin"), FileError);
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(int number, std::uint64_t value) {
  return varint(static_cast<std::uint64_t>(number) << 3) + varint(value);
}
std::string piece(std::string_view text, float score, std::uint64_t kind) {
  return field(1, field(1, text) + varint(2 << 3 | 5) + raw(score) + field(3, kind));
}

TEST_F(LlamaFormats, SentencePiece) {
  std::string file;
  for (std::size_t id = 0; id < pieces.size(); ++id)
    file += piece(pieces[id], score(id), id == 0 ? 2 : id < 3 ? 3 : id < 259 ? 6 : 1);
  file += field(2, field(3, 2) + field(35, 1) + field(41, 1) + field(42, 2));
  file += field(3, field(1, "identity") + field(3, 1) + field(4, std::uint64_t{0}));
  expect_same(load_sentencepiece(file, "tokenizer.model"));
  EXPECT_THROW(load_sentencepiece(file.substr(0, file.size() - 1), "tokenizer.model"), FileError);
}

TEST(SentencePieceFormat, UnigramIsT5) {
  const auto json = nlohmann::json::parse(test::read_file(test::real_tokenizer("t5")));
  const auto expected = Tokenizer::load(test::real_tokenizer("t5"));
  std::string file;
  std::size_t id = 0;
  for (const auto& entry : json.at("model").at("vocab")) {
    file += piece(entry.at(0).get<std::string>(), entry.at(1).get<float>(), id == 2 ? 2 : id < 2 ? 3 : 1);
    ++id;
  }
  file += field(2, field(3, 1) + field(42, 1));
  file += field(3, field(3, 1) + field(4, 1));
  const auto tokenizer = load_sentencepiece(file, "spiece.model");
  for (const char* text : {"translate English to German: The house is wonderful.", "  two   spaces ", "studying 3.14"})
    EXPECT_EQ(tokenizer.encode(text).ids, expected.encode(text).ids) << text;
}

}  // namespace
}  // namespace jerboa
