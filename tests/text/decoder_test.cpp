#include "text/decoder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

namespace jerboa {
namespace {

struct Streamed {
  std::vector<std::string> pieces;
  std::string all;
};

Streamed decode(const nlohmann::json& config, const std::vector<std::string>& tokens, bool raw_bytes = false) {
  const DecoderChain chain = DecoderChain::parse(JsonView(config, "decoder"));
  TokenDecoder decoder(chain, raw_bytes);
  Streamed result;
  const auto keep = [&](std::string piece) {
    result.all += piece;
    result.pieces.push_back(std::move(piece));
  };
  for (const auto& token : tokens) {
    std::string out;
    decoder.push(token, out);
    keep(std::move(out));
  }
  std::string out;
  decoder.finish(out);
  keep(std::move(out));
  return result;
}

nlohmann::json sequence(const std::vector<nlohmann::json>& decoders) {
  return {{"type", "Sequence"}, {"decoders", decoders}};
}

TEST(Decoder, ByteLevelHoldsHalfCharactersBack) {
  const auto result = decode({{"type", "ByteLevel"}}, {"Hi", "ĠðŁ", "ļ", "Ģ", "ðŁ"});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"Hi", " ", "", "🚀", "", "\uFFFD"}));
  EXPECT_EQ(decode({{"type", "ByteLevel"}}, {"ðŁ", "x"}, true).all, "\xF0\x9Fx");
}

TEST(Decoder, ByteFallbackJoinsBytes) {
  const auto llama = sequence({{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                               {{"type", "ByteFallback"}},
                               {{"type", "Fuse"}},
                               {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}});
  const auto result = decode(llama, {"▁", "▁Hi", "<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "!", "<0xE4>"});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"", " Hi", "", "", "你", "\uFFFD", "!", "", "\uFFFD"}));
}

TEST(Decoder, WordPieceJoinsAndCleansUp) {
  const auto result =
      decode({{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}, {"hello", "##s", ",", "do", "n't"});
  EXPECT_EQ(result.all, "hellos, don't");
}

TEST(Decoder, BpeDecoderNeedsToKnowTheLastToken) {
  const auto result = decode({{"type", "BPEDecoder"}, {"suffix", "</w>"}}, {"one</w>", "tw", "o</w>"});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"", "one ", "tw", "o"}));
}

TEST(Decoder, CtcCollapsesRepeats) {
  const auto result =
      decode({{"type", "CTC"}, {"pad_token", "<pad>"}, {"word_delimiter_token", "|"}, {"cleanup", true}},
             {"h", "h", "<pad>", "h", "i", "|", "|", "o"});
  EXPECT_EQ(result.all, "hhi o");
}

TEST(Decoder, StepsAfterFuseSeeOneToken) {
  const auto result =
      decode(sequence({{{"type", "Fuse"}}, {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "X"}}}),
             {"a", "b", "ab"});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"", "", "", "XX"}));
}

TEST(Decoder, StripLooksAcrossFragments) {
  const auto strip = [](int start, int stop) {
    return sequence({{{"type", "Fuse"}}, {{"type", "Strip"}, {"content", "é"}, {"start", start}, {"stop", stop}}});
  };
  EXPECT_EQ(decode(strip(2, 0), {"\xC3", "\xA9é", "éx"}).all, "éx");
  EXPECT_EQ(decode(strip(3, 0), {"é", "x"}).pieces, (std::vector<std::string>{"", "x", ""}));
  EXPECT_EQ(decode(strip(0, 1), {"x", "é", "é"}).all, "xé");
}

TEST(Decoder, UnknownKindsAreErrors) {
  EXPECT_THROW(decode({{"type", "Nonsense"}}, {}), FileError);
  EXPECT_THROW(decode({{"type", "Strip"}, {"content", ""}}, {}), FileError);
  nlohmann::json nested = {{"type", "Fuse"}};
  for (int i = 0; i < 100; ++i) nested = sequence({nested});
  EXPECT_THROW(decode(nested, {}), FileError);
}

}  // namespace
}  // namespace jerboa
