// The input chooses a chain of decoders and a sequence of tokens. Every piece must be valid UTF-8, and the pieces
// together must equal the result of decoding at once.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/decoder.h"
#include "text/utf8.h"

namespace {

using namespace jerboa;

DecoderChain::Step step_of(std::uint8_t choice) {
  switch (choice % 11) {
    case 0: return decoders::ByteLevel{};
    case 1: return decoders::ByteFallback{};
    case 2: return decoders::Fuse{};
    case 3:
      return decoders::Strip{" ", static_cast<std::size_t>(choice / 11 % 3), static_cast<std::size_t>(choice / 33 % 3)};
    case 4: return decoders::Strip{"é", 1, 0};
    case 5: return decoders::Replace{Pattern(std::string("\u2581")), " "};
    case 6: return decoders::WordPiece{};
    case 7: return decoders::Metaspace{};
    case 8: return decoders::Bpe{};
    case 9: return decoders::Ctc{};
    default: return decoders::Join{};
  }
}

const std::array<std::string, 24> spellings = {
    "a",      " ",      "é",      "Ġ",      "ðŁ",  "ļ",    "Ģ",     "Ã", "©",  "<0xF0>", "<0x9F>", "<0x9A>",
    "<0x80>", "<0xC3>", "<0xA9>", "\u2581", "##b", "</w>", "<pad>", "|", " é", "",       "你好",   "x</w>"};

std::string decode(const DecoderChain& chain, const std::vector<std::uint8_t>& tokens, bool check_pieces) {
  TokenDecoder decoder(chain, false);
  std::string all;
  std::string piece;
  for (const std::uint8_t token : tokens) {
    if (check_pieces) piece.clear();
    decoder.push(spellings[token % spellings.size()], piece);
    if (!check_pieces) continue;
    if (!utf8::is_valid(piece)) std::abort();
    all += piece;
  }
  if (check_pieces) piece.clear();
  decoder.finish(piece);
  if (!utf8::is_valid(piece)) std::abort();
  return all + piece;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  DecoderChain chain;
  std::size_t at = 1;
  for (int steps = data[0] % 5; steps > 0 && at < size; --steps) chain.add(step_of(data[at++]));
  const std::vector<std::uint8_t> tokens(data + at, data + size);
  const std::string streamed = decode(chain, tokens, true);
  if (streamed != decode(chain, tokens, false)) std::abort();

  // If nothing is fused or collapsed, the first tokens decode to a prefix of the whole text.
  TokenDecoder decoder(chain, false);
  std::string prefix;
  for (std::size_t i = 0; i < tokens.size() / 2; ++i) decoder.push(spellings[tokens[i] % spellings.size()], prefix);
  if (!streamed.starts_with(prefix)) std::abort();
  return 0;
}
