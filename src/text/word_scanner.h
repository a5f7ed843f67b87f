#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"

namespace jerboa {

/// The regular expressions by which most language models split text into words, scanned by hand: an order of magnitude
/// faster than a regular-expression engine, with the same words.
class WordScanner {
 public:
  /// The expression of GPT-2, which the ByteLevel pre-tokenizer implies.
  static constexpr std::string_view gpt2_regex =
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  static WordScanner gpt2() { return WordScanner(Family::gpt2, 0); }

  /// A scanner for `regex` if it is one of the known ones (GPT-2's; cl100k's, as in Llama 3; Qwen 2's).
  static std::optional<WordScanner> for_regex(std::string_view regex);

  /// Appends the words of text[range), which cover it without gaps.
  void split(std::string_view text, Range range, std::vector<Range>& words) const;

 private:
  enum class Family { gpt2, cl100k };
  WordScanner(Family family, std::uint32_t max_digits) : family_(family), max_digits_(max_digits) {}

  Family family_;
  std::uint32_t max_digits_;  // cl100k: how many digits make one word
};

}  // namespace jerboa
