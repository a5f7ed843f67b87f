#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/text/simple_tokenizers.h>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

static_assert(TextTokenizer<Tokenizer> && TextTokenizer<ByteTokenizer> && TextTokenizer<CharTokenizer>);

void check_size(std::string_view text) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max())
    throw UsageError(fmt::format("a text of {} bytes is too long to encode at once; split it", text.size()));
}

void put(Encoding& encoding, std::int32_t id, std::size_t begin, std::size_t end) {
  encoding.ids.push_back(id);
  encoding.offsets.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
}

void finish(Encoding& encoding) {
  encoding.type_ids.assign(encoding.size(), 0);
  encoding.special_mask.assign(encoding.size(), 0);
  encoding.attention_mask.assign(encoding.size(), 1);
}

// The file of a BPE model without merges: one token for each character that it reads.
std::string model_file(nlohmann::json vocab, nlohmann::json byte_level, nlohmann::json decoder) {
  const nlohmann::json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", nlohmann::json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", std::move(byte_level)},
      {"post_processor", nullptr},
      {"decoder", std::move(decoder)},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", nlohmann::json::array()}}}};
  return file.dump(1) + "\n";
}

}  // namespace

Encoding ByteTokenizer::encode(std::string_view text, EncodeOptions) const {
  check_size(text);
  Encoding encoding;
  for (std::size_t i = 0; i < text.size(); ++i) put(encoding, static_cast<unsigned char>(text[i]), i, i + 1);
  finish(encoding);
  return encoding;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions options) const {
  std::string bytes;
  for (const std::int32_t id : ids)
    if (id >= 0 && id < 256) bytes.push_back(static_cast<char>(id));
  if (options.raw_bytes) return bytes;
  std::string text;
  utf8::Assembler assembler;
  assembler.push(bytes, text);
  assembler.finish(text);
  return text;
}

std::string ByteTokenizer::to_json() const {
  nlohmann::json vocab;
  for (std::size_t byte = 0; byte < 256; ++byte) vocab[byte_alphabet()[byte]] = byte;
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  return model_file(std::move(vocab), byte_level, byte_level);
}

CharTokenizer::CharTokenizer(std::string_view text) {
  if (text.empty()) throw UsageError("a character tokenizer needs a text to take its characters from");
  if (const auto good = utf8::valid_prefix(text); good != text.size())
    throw UsageError(fmt::format("the text for a character tokenizer is not UTF-8 at byte {}", good));
  std::set<char32_t> distinct;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode(text, at);
    distinct.insert(c.code);
    at += c.size;
  }
  characters_.assign(distinct.begin(), distinct.end());
  for (const char32_t c : characters_) ids_.emplace(c, static_cast<std::int32_t>(ids_.size()));
}

Encoding CharTokenizer::encode(std::string_view text, EncodeOptions) const {
  check_size(text);
  Encoding encoding;
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode(text, at);
    const auto found = c.valid ? ids_.find(c.code) : ids_.end();
    if (found == ids_.end()) {
      throw UsageError(fmt::format("U+{:04X} \"{}\" at byte {} is not one of the tokenizer's {} characters",
                                   static_cast<std::uint32_t>(c.code), utf8::encode(c.code), at, characters_.size()));
    }
    put(encoding, found->second, at, at + c.size);
    at += c.size;
  }
  finish(encoding);
  return encoding;
}

std::string CharTokenizer::decode(std::span<const std::int32_t> ids, DecodeOptions) const {
  std::string text;
  for (const std::int32_t id : ids)
    if (id >= 0 && id < vocab_size()) utf8::append(text, characters_[static_cast<std::size_t>(id)]);
  return text;
}

std::string CharTokenizer::to_json() const {
  nlohmann::json vocab;
  for (std::size_t i = 0; i < characters_.size(); ++i) vocab[utf8::encode(characters_[i])] = i;
  return model_file(std::move(vocab), nullptr, {{"type", "Fuse"}});
}

}  // namespace jerboa
