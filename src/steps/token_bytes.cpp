#include "steps/token_bytes.h"

#include <array>
#include <optional>

namespace jerboa::detail {
namespace {

std::string decoded(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  return tokenizer.decode(ids, {.skip_special = true, .raw_bytes = true});
}

// A token that decodes to the same text whatever follows it.
std::optional<std::int32_t> anchor_of(const Tokenizer& tokenizer) {
  for (const char* text : {"a", "0", "."})
    for (const std::int32_t id : tokenizer.encode(text, {.add_special = false}).ids)
      if (decoded(tokenizer, std::array{id}) == text) return id;
  return std::nullopt;
}

}  // namespace

// A decoder may drop a space at the beginning of a text, so each token is decoded after another one.
std::vector<std::string> token_bytes(const Tokenizer& tokenizer, std::int64_t count) {
  std::vector<std::string> bytes(static_cast<std::size_t>(count));
  const auto anchor = anchor_of(tokenizer);
  const std::size_t before = anchor ? decoded(tokenizer, std::array{*anchor}).size() : 0;
  for (std::int32_t id = 0; id < count; ++id) {
    if (!tokenizer.id_to_token(id) || tokenizer.is_special(id)) continue;
    const std::string both = anchor ? decoded(tokenizer, std::array{*anchor, id}) : decoded(tokenizer, std::array{id});
    if (both.size() >= before) bytes[static_cast<std::size_t>(id)] = both.substr(before);
  }
  return bytes;
}

}  // namespace jerboa::detail
