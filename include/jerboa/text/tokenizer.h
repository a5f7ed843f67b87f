#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace jerboa {

/// The bytes [begin, end) of the text that a token covers.
struct TextSpan {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const TextSpan&) const = default;
};

/// A tokenized text. All vectors have the same length.
struct Encoding {
  std::vector<std::int32_t> ids;
  std::vector<TextSpan> offsets;           ///< whole characters of the original text; empty for inserted tokens
  std::vector<std::int32_t> type_ids;      ///< 0 for the first text, 1 for the second of a pair, as the file specifies
  std::vector<std::uint8_t> special_mask;  ///< 1 for tokens that the post-processor or padding inserted
  std::vector<std::uint8_t> attention_mask;  ///< 0 for padding

  std::size_t size() const { return ids.size(); }
};

struct EncodeOptions {
  bool add_special = true;  ///< [CLS], <s> and the like, where the tokenizer has them
};

struct DecodeOptions {
  bool skip_special = true;
  /// Returns bytes that are not valid UTF-8 unchanged instead of as U+FFFD.
  bool raw_bytes = false;
};

enum class Side { left, right };

/// Truncates texts to a number of tokens, including special ones.
struct Truncation {
  enum class Strategy { longest_first, only_first, only_second };
  std::size_t max_length = 512;
  Side side = Side::right;  ///< the side that tokens are removed from
  Strategy strategy = Strategy::longest_first;
};

/// Pads texts to a length.
struct Padding {
  std::optional<std::size_t> length;  ///< unset: the longest text of the batch
  std::size_t multiple_of = 1;
  Side side = Side::right;
  std::int32_t id = 0;
  std::int32_t type_id = 0;
};

class TokenDecoder;
namespace detail {
struct TokenizerParts;
}

/// Converts text to tokens and back, as described by a Hugging Face tokenizer.json.
///
///     auto tokenizer = Tokenizer::load("Qwen3-0.6B");
///     Encoding encoding = tokenizer.encode("Hello, world!");
///     std::string text = tokenizer.decode(encoding.ids);
///
/// A value type: copies share the loaded data. Every const member may be called from several threads.
class Tokenizer {
 public:
  /// A tokenizer.json, sentencepiece .model or llama2.c tokenizer.bin, or a folder with one of them (in this order of
  /// preference). Throws FileError.
  static Tokenizer load(const std::filesystem::path& path);
  /// The same from a file's contents; its name determines the kind. For a sentencepiece model, tokenizer_config.json,
  /// if there is one, says whether to add beginning-of-sequence and end-of-sequence tokens.
  static Tokenizer from_file(std::string_view content, const std::string& name, std::string_view config_text = {},
                             const std::string& config_name = "tokenizer_config.json");
  /// From the text of a tokenizer.json; errors call the file `name`.
  static Tokenizer from_json(std::string_view json, std::string_view name = "tokenizer.json");

  Encoding encode(std::string_view text, EncodeOptions options = {}) const;
  /// Two texts as one input, for models that compare them.
  Encoding encode_pair(std::string_view first, std::string_view second, EncodeOptions options = {}) const;
  /// Many texts, on several threads.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts, EncodeOptions options = {}) const;

  /// Unknown ids are skipped: models often have more outputs than there are tokens.
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const;

  /// One more than the largest id.
  std::int32_t vocab_size() const;
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  /// A token as the vocabulary writes it ("Ġworld"); nullopt for an unknown id.
  std::optional<std::string> id_to_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  /// The special tokens with their ids.
  std::vector<std::pair<std::string, std::int32_t>> special_tokens() const;
  /// "BPE", "WordPiece", "WordLevel" or "Unigram".
  std::string model_type() const;

  /// As specified by the file or set since; applied by every encode.
  const std::optional<Truncation>& truncation() const { return truncation_; }
  const std::optional<Padding>& padding() const { return padding_; }
  void set_truncation(std::optional<Truncation> truncation) { truncation_ = truncation; }
  void set_padding(std::optional<Padding> padding) { padding_ = padding; }

  /// Internal.
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerParts> parts);

 private:
  friend class StreamDecoder;
  Encoding encode_unpadded(std::string_view first, const std::string_view* second, EncodeOptions options) const;

  std::shared_ptr<const detail::TokenizerParts> parts_;
  std::optional<Truncation> truncation_;
  std::optional<Padding> padding_;
};

/// Decodes tokens as they arrive, whole characters at a time. The pieces, followed by the result of finish(), are
/// exactly what Tokenizer::decode returns for all ids.
///
///     StreamDecoder stream(tokenizer);
///     while (auto id = next()) std::cout << stream.push(*id) << std::flush;
///     std::cout << stream.finish();
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, DecodeOptions options = {});
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;
  ~StreamDecoder();

  /// The text that became final with this token; may be empty.
  std::string push(std::int32_t id);
  /// The text held back so far. Resets the decoder.
  std::string finish();

 private:
  friend class Tokenizer;
  void push_to(std::int32_t id, std::string& out);

  std::shared_ptr<const detail::TokenizerParts> parts_;
  DecodeOptions options_;
  std::unique_ptr<TokenDecoder> decoder_;
};

}  // namespace jerboa
