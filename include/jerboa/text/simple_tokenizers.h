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

/// What training and generation need of a tokenizer: Tokenizer, ByteTokenizer and CharTokenizer have it.
template <typename T>
concept TextTokenizer = requires(const T& tokenizer, std::string_view text, std::span<const std::int32_t> ids) {
  { tokenizer.encode(text) } -> std::same_as<Encoding>;
  { tokenizer.decode(ids) } -> std::same_as<std::string>;
  { tokenizer.vocab_size() } -> std::same_as<std::int32_t>;
};

/// A token for every byte: the smallest vocabulary that can write anything.
class ByteTokenizer {
 public:
  std::int32_t vocab_size() const { return 256; }
  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  /// Ids out of range are left out. Bytes that are not UTF-8 come as U+FFFD, unless raw_bytes is set.
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;
  /// As the text of a tokenizer.json, with the same ids.
  std::string to_json() const;
};

/// A token for every character of a text, in the order of their code points.
///
///     CharTokenizer tokenizer(sonnets);
class CharTokenizer {
 public:
  /// The characters of `text`. Throws UsageError where it is empty or not UTF-8.
  explicit CharTokenizer(std::string_view text);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(characters_.size()); }
  /// Throws UsageError that names a character without a token, and where it stands.
  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;
  /// As the text of a tokenizer.json, with the same ids.
  std::string to_json() const;

 private:
  std::vector<char32_t> characters_;
  std::unordered_map<char32_t, std::int32_t> ids_;
};

}  // namespace jerboa
