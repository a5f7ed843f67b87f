#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <jerboa/text/tokenizer.h>

namespace jerboa {

/// The requirements of training and generation on a tokenizer. Tokenizer, ByteTokenizer and CharTokenizer satisfy it.
template <typename T>
concept TextTokenizer = requires(const T& tokenizer, std::string_view text, std::span<const std::int32_t> ids) {
  { tokenizer.encode(text) } -> std::same_as<Encoding>;
  { tokenizer.decode(ids) } -> std::same_as<std::string>;
  { tokenizer.vocab_size() } -> std::same_as<std::int32_t>;
};

/// One token per byte: the smallest vocabulary that can encode anything.
class ByteTokenizer {
 public:
  std::int32_t vocab_size() const { return 256; }
  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  /// Ids out of range are skipped. Bytes that are not valid UTF-8 become U+FFFD unless raw_bytes is set.
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;
  /// The text of an equivalent tokenizer.json, with the same ids.
  std::string to_json() const;
};

/// One token per distinct character of a text, in code point order.
///
///     CharTokenizer tokenizer(sonnets);
class CharTokenizer {
 public:
  /// The characters of `text`. Throws UsageError if it is empty or not UTF-8.
  explicit CharTokenizer(std::string_view text);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(characters_.size()); }
  /// Throws UsageError that names a character without a token and its position.
  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;
  /// The text of an equivalent tokenizer.json, with the same ids.
  std::string to_json() const;

 private:
  std::vector<char32_t> characters_;
  std::unordered_map<char32_t, std::int32_t> ids_;
};

}  // namespace jerboa
