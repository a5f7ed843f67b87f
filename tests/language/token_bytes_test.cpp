#include "steps/token_bytes.h"

#include <gtest/gtest.h>

namespace jerboa {
namespace {

TEST(TokenBytes, AreTheBytesThatTokensAddToAText) {
  const Tokenizer pieces = Tokenizer::from_json(R"({
    "added_tokens": [{"id": 0, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "byte_fallback": true, "merges": [],
              "vocab": {"<s>": 0, "a": 1, "▁": 2, "▁the": 3, "<0xC3>": 4, "b": 5}}})");
  const std::vector<std::string> bytes = detail::token_bytes(pieces, 8);
  EXPECT_EQ(bytes, (std::vector<std::string>{"", "a", " ", " the", "\xc3", "b", "", ""}));
}

}  // namespace
}  // namespace jerboa
