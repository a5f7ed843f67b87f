#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/text/tokenizer.h>

#include "support/temp_folder.h"

namespace jerboa::tokenizer_test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int32_t>;

Tokenizer load(const Json& json) { return Tokenizer::from_json(json.dump()); }

Json word_level() {
  return Json::parse(R"({
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    "added_tokens": [{"id": 1, "content": "[CLS]", "special": true}, {"id": 2, "content": "[SEP]", "special": true}],
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "c": 5, "d": 6}}})");
}

TEST(Tokenizer, AddsSpecialTokensOnRequest) {
  const auto tokenizer = load(word_level());
  EXPECT_EQ(tokenizer.encode("a b zz").ids, (Ids{1, 3, 4, 0, 2}));
  EXPECT_EQ(tokenizer.encode("a b", {.add_special = false}).ids, (Ids{3, 4}));
  const Encoding encoding = tokenizer.encode(" a\nb");
  EXPECT_EQ(encoding.special_mask, (std::vector<std::uint8_t>{1, 0, 0, 1}));
  EXPECT_EQ(encoding.offsets, (std::vector<TextSpan>{{0, 0}, {1, 2}, {3, 4}, {0, 0}}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "a b");
  EXPECT_EQ(tokenizer.decode(encoding.ids, {.skip_special = false}), "[CLS] a b [SEP]");
}

TEST(Tokenizer, EncodesPairs) {
  const Encoding pair = load(word_level()).encode_pair("a b", "c");
  EXPECT_EQ(pair.ids, (Ids{1, 3, 4, 2, 5, 2}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 0, 0, 0, 1, 1}));
}

TEST(Tokenizer, TruncatesAsTheFileSays) {
  Json json = word_level();
  json["truncation"] = {{"max_length", 4}, {"direction", "Left"}, {"strategy", "LongestFirst"}, {"stride", 0}};
  auto tokenizer = load(json);
  EXPECT_EQ(tokenizer.encode("a b c d").ids, (Ids{1, 5, 6, 2}));
  EXPECT_EQ(tokenizer.encode("a b c d a", {.add_special = false}).ids, (Ids{4, 5, 6, 3}));
  tokenizer.set_truncation(Truncation{.max_length = 6});
  EXPECT_EQ(tokenizer.encode_pair("a b c d", "a").ids, (Ids{1, 3, 4, 2, 3, 2}));
  EXPECT_EQ(tokenizer.encode_pair("a", "a b c d").ids, (Ids{1, 3, 2, 3, 4, 2}));
  EXPECT_EQ(tokenizer.encode_pair("a b c", "d d d").ids, (Ids{1, 3, 2, 6, 6, 2}));
  tokenizer.set_truncation(Truncation{.max_length = 6, .strategy = Truncation::Strategy::only_second});
  EXPECT_EQ(tokenizer.encode_pair("a b", "c d a b").ids, (Ids{1, 3, 4, 2, 5, 2}));
  tokenizer.set_truncation(Truncation{.max_length = 1});
  EXPECT_EQ(tokenizer.encode("a b").ids, (Ids{1, 2}));
  tokenizer.set_truncation({});
  EXPECT_EQ(tokenizer.encode("a b c d").size(), 6U);
}

TEST(Tokenizer, PadsAsTheFileSays) {
  Json json = word_level();
  json["padding"] = {
      {"strategy", "BatchLongest"}, {"direction", "Right"}, {"pad_to_multiple_of", nullptr}, {"pad_id", 9},
      {"pad_type_id", 7},           {"pad_token", "[PAD]"}};
  auto tokenizer = load(json);
  const std::vector<std::string> texts = {"a", "a b c"};
  const auto batch = tokenizer.encode_batch(texts);
  EXPECT_EQ(batch[0].ids, (Ids{1, 3, 2, 9, 9}));
  EXPECT_EQ(batch[0].attention_mask, (std::vector<std::uint8_t>{1, 1, 1, 0, 0}));
  EXPECT_EQ(batch[0].type_ids, (Ids{0, 0, 0, 7, 7}));
  EXPECT_EQ(batch[1].ids, (Ids{1, 3, 4, 5, 2}));
  tokenizer.set_padding(Padding{.length = 6, .multiple_of = 4, .side = Side::left, .id = 8});
  EXPECT_EQ(tokenizer.encode("a").ids, (Ids{8, 8, 8, 8, 8, 1, 3, 2}));
}

TEST(Tokenizer, FindsTheMostProbableUnigrams) {
  const Json json = Json::parse(R"({
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["▁", -5], ["a", -3], ["b", -3.1], ["ab", -4], ["abc", -20],
              ["c", -2], ["▁ab", -6], ["bc", -3]]}})");
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer.encode("ab").ids, (Ids{7}));      // ▁ab -6, not ▁ ab -9
  EXPECT_EQ(tokenizer.encode("abc").ids, (Ids{7, 6}));  // ▁ab c -8, not ▁ a bc -11
  EXPECT_EQ(tokenizer.encode("cabc").ids,
            (Ids{1, 6, 2, 8}));  // … a bc -6 ties with ab c -6: the longer last token is found first
  const Encoding unknown = tokenizer.encode("aéüb");
  EXPECT_EQ(unknown.ids, (Ids{1, 2, 0, 3}));
  EXPECT_EQ(unknown.offsets[2], (TextSpan{1, 5}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab cab").ids), "ab cab");
}

TEST(Tokenizer, FallsBackToBytes) {
  Json vocab = {{"<unk>", 0}, {"a", 1}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    vocab[name] = 2 + byte;
  }
  Json json = {
      {"model",
       {{"type", "BPE"}, {"unk_token", "<unk>"}, {"byte_fallback", true}, {"vocab", vocab}, {"merges", Json::array()}}},
      {"decoder", {{"type", "ByteFallback"}}}};
  const auto tokenizer = load(json);
  const Encoding encoding = tokenizer.encode("a你");
  EXPECT_EQ(encoding.ids, (Ids{1, 2 + 0xE4, 2 + 0xBD, 2 + 0xA0}));
  EXPECT_EQ(encoding.offsets[3], (TextSpan{1, 4}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "a你");
  // A character-level model sees invalid UTF-8 as a replacement character with the offsets of the invalid bytes.
  const Encoding bad = tokenizer.encode(
      "a\xFF"
      "a");
  EXPECT_EQ(tokenizer.decode(bad.ids), "a\uFFFDa");
  EXPECT_EQ(bad.offsets[1], (TextSpan{1, 2}));
  EXPECT_EQ(bad.offsets.back(), (TextSpan{2, 3}));
}

TEST(Tokenizer, JoinsLongWordsAsShortOnes) {
  // A word long enough for the heap, compared with the same word merged by scanning.
  Json json = Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "aa": 2, "aaaa": 3, "ab": 4},
                              "merges": ["a a", "aa aa", "a b"]}})");
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer.encode(std::string(7, 'a') + "b").ids, (Ids{3, 2, 4}));
  Ids expected(250, 3);
  expected.insert(expected.end(), {2, 4});
  EXPECT_EQ(tokenizer.encode(std::string(1003, 'a') + "b").ids, expected);
}

std::string failure(const Json& json) {
  try {
    Tokenizer::from_json(json.is_string() ? json.get<std::string>() : json.dump(), "broken.json");
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Tokenizer, ErrorsNameThePlace) {
  EXPECT_EQ(failure(Json("")), "broken.json:1: the file ends in the middle of a value (byte 0)");
  EXPECT_EQ(failure(Json::object()), "broken.json: there is no \"model\"; is this a tokenizer.json?");
  Json json = word_level();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Odd"}}}}};
  EXPECT_EQ(failure(json), "broken.json.normalizer.normalizers[1]: unknown normalizer \"Odd\"");
  json = word_level();
  json["model"]["type"] = "Odd";
  EXPECT_EQ(failure(json),
            "broken.json: model: unknown model type \"Odd\"; BPE, WordPiece, WordLevel and Unigram are supported");
  json = {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a b"}}}}};
  EXPECT_EQ(failure(json), "broken.json: model: merges[0] needs the token \"b\", which the vocabulary does not have");
  json["model"]["vocab"]["a"] = 1LL << 40;
  EXPECT_NE(failure(json).find("token id 1099511627776 is out of range"), std::string::npos);
  json = word_level();
  json["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(["}}}, {"behavior", "Isolated"}};
  EXPECT_NE(failure(json).find("broken.json.pre_tokenizer.pattern: regular expression \"([\": "), std::string::npos);
  EXPECT_NE(failure(Json("{\"model\": \xFF}")).find("byte 10 is not UTF-8"), std::string::npos);
}

TEST(Tokenizer, DeepNestingIsAnError) {
  std::string json = R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}, "normalizer": )";
  for (int i = 0; i < 100'000; ++i) json += R"({"type": "Sequence", "normalizers": [)";
  json += R"({"type": "NFC"})";
  for (int i = 0; i < 100'000; ++i) json += "]}";
  EXPECT_NE(failure(Json(json + "}")).find("nested more than 256 deep"), std::string::npos);
}

TEST(Tokenizer, KeysThatOccurTwiceAreErrors) {
  const auto refuse = [](const std::string& text, const std::string& what) {
    const std::string message = failure(Json(text));
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  refuse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "a": 2}}})", "the token \"a\" occurs twice");
  refuse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "vocab": {}}})", "the key \"vocab\" occurs twice");
  refuse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}, "model": {}})", "the key \"model\" occurs twice");
  refuse(R"({"decoder": {"type": "Fuse", "type": "Fuse"}})", "the key \"type\" occurs twice");
  refuse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}} {)", "unexpected text after the end");
  refuse(R"({"model": {"type": "Unigram", "vocab": [["a", 1e999]]}})", "the number 1e999 is out of range");
  refuse(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}, "padding": {"pad_id": 4294967296}})",
         "pad_id is 4294967296, which is out of range");
}

TEST(Tokenizer, ContentIsReadByTheNameOfItsFile) {
  EXPECT_EQ(Tokenizer::from_file(word_level().dump(), "folder/tokenizer.json").encode("a").ids, (Ids{1, 3, 2}));
  EXPECT_THROW(Tokenizer::from_file("x", "notes.txt"), FileError);
}

TEST(Tokenizer, LoadErrorsNameThePath) {
  const test::TempFolder folder;
  EXPECT_THROW(Tokenizer::load(folder / "missing"), FileError);
  EXPECT_THROW(Tokenizer::load(folder.path()), FileError);
  test::write_text(folder / "notes.txt", "x");
  EXPECT_THROW(Tokenizer::load(folder / "notes.txt"), FileError);
  test::write_text(folder / "tokenizer.json", word_level().dump());
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("a").ids, (Ids{1, 3, 2}));
}

}  // namespace
}  // namespace jerboa::tokenizer_test
