#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/json_view.h"
#include "text/pattern.h"
#include "text/utf8.h"

namespace jerboa {

/// The decoders of tokenizer.json.
namespace decoders {
struct ByteLevel {};     // tokens spell bytes in the byte alphabet
struct ByteFallback {};  // "<0xE4>" is a byte
struct Fuse {};          // all tokens become one
struct Strip {           // removes up to a number of characters from the ends of a token
  std::string content = " ";
  std::size_t start = 0;
  std::size_t stop = 0;
};
struct Replace {
  Pattern pattern;
  std::string content;
};
struct WordPiece {
  std::string prefix = "##";
  bool cleanup = true;
};
struct Metaspace {
  std::string replacement = "\u2581";
  bool drop_first = true;  // the space that the pre-tokenizer prepended
};
struct Bpe {
  std::string suffix = "</w>";
};
struct Ctc {
  std::string pad_token = "<pad>";
  std::string word_delimiter = "|";
  bool cleanup = true;
};
struct Join {};  // spaces between tokens: for a tokenizer without a decoder
}  // namespace decoders

/// A chain of decoders, as data.
class DecoderChain {
 public:
  using Step =
      std::variant<decoders::ByteLevel, decoders::ByteFallback, decoders::Fuse, decoders::Strip, decoders::Replace,
                   decoders::WordPiece, decoders::Metaspace, decoders::Bpe, decoders::Ctc, decoders::Join>;

  static DecoderChain parse(const JsonView& json);
  void add(Step step) { steps_.push_back(std::move(step)); }
  const std::vector<Step>& steps() const { return steps_; }

 private:
  void parse_into(const JsonView& json, int depth);
  std::vector<Step> steps_;
};

/// Runs a chain over tokens as they arrive. Each step passes on what later tokens cannot change and holds back the
/// rest, so that decoding in pieces gives the same text as decoding at once.
class TokenDecoder {
 public:
  /// Borrows the chain.
  TokenDecoder(const DecoderChain& chain, bool raw_bytes);

  void push(std::string_view token, std::string& out);
  void finish(std::string& out);

 private:
  struct State {
    bool first = true;
    bool holds = false;        // `held` is a token, or the beginning of one
    bool in_fragment = false;  // within a token that arrives in pieces (after Fuse or ByteLevel)
    std::size_t stripped = 0;
    std::string held;
    utf8::Assembler bytes;
  };
  void push_to(std::size_t step, std::string_view token, std::string& out);
  void finish_from(std::size_t step, std::string& out);
  void push_bytes(std::size_t step, std::string_view bytes, std::string& out);
  /// Whether the steps from `step` on can take one token in pieces.
  bool takes_fragments(std::size_t step) const;
  void fuse(std::size_t step, std::string_view text, std::string& out);

  const DecoderChain* chain_;
  bool raw_bytes_;
  std::vector<State> states_;
};

}  // namespace jerboa
