#include "text/charsmap.h"

#include <cstring>
#include <fmt/format.h>
#include <utf8proc.h>

#include <jerboa/base/error.h>

#include "text/utf8.h"

namespace jerboa {
namespace {

// A unit of the double array (the darts-clone layout).
struct Unit {
  std::uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t value() const { return bits & 0x7FFFFFFF; }
  std::uint32_t label() const { return bits & 0x800000FF; }
  std::uint32_t offset() const { return bits >> 10 << ((bits & 0x200) >> 6); }
};

std::size_t grapheme_end(std::string_view text, std::size_t begin) {
  utf8::Char c = utf8::decode(text, begin);
  std::size_t at = begin + c.size;
  utf8proc_int32_t state = 0;
  while (at < text.size()) {
    const utf8::Char next = utf8::decode(text, at);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state))
      break;
    at += next.size;
    c = next;
  }
  return at;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view where) {
  std::uint32_t trie_bytes = 0;
  if (blob.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, blob.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - sizeof trie_bytes)
    throw FileError(
        fmt::format("{}: a character map of {} bytes cannot hold a trie of {}", where, blob.size(), trie_bytes));
  trie_.resize(trie_bytes / 4);
  std::memcpy(trie_.data(), blob.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = blob.substr(sizeof trie_bytes + trie_bytes);
}

Charsmap Charsmap::from_base64(std::string_view text, std::string_view where) {
  std::string blob;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    if (c == '=') break;
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const auto digit = digits.find(c);
    if (digit == std::string_view::npos) throw FileError(fmt::format("{}: not base64", where));
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      blob.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return Charsmap(blob, where);
}

std::optional<std::string_view> Charsmap::find(std::string_view chunk) const {
  std::size_t at = Unit{trie_[0]}.offset();
  for (const char c : chunk) {
    const auto byte = static_cast<unsigned char>(c);
    at ^= byte;
    if (byte == 0 || at >= trie_.size()) return std::nullopt;
    const Unit unit{trie_[at]};
    if (unit.label() != byte) return std::nullopt;
    at ^= unit.offset();
    if (unit.has_leaf()) {
      if (at >= trie_.size()) return std::nullopt;
      const std::uint32_t begin = Unit{trie_[at]}.value();
      if (begin >= replacements_.size()) return std::nullopt;
      return std::string_view(replacements_).substr(begin, replacements_.find('\0', begin) - begin);
    }
  }
  return std::nullopt;
}

void Charsmap::apply(AlignedText& aligned) const {
  // Like sentencepiece's longest match, looks up a grapheme of a few bytes as a whole; if it has no entry, its
  // characters are looked up one by one.
  constexpr std::size_t max_grapheme = 6;
  const std::string_view text = aligned.text();
  Rewriter rewriter(text);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = grapheme_end(text, begin);
    const auto whole = end - begin < max_grapheme ? find(text.substr(begin, end - begin)) : std::nullopt;
    if (whole) {
      rewriter.replace(begin, end, *whole);
    } else {
      for (std::size_t at = begin; at < end;) {
        const std::size_t size = utf8::decode(text, at).size;
        if (const auto found = find(text.substr(at, size))) rewriter.replace(at, at + size, *found);
        at += size;
      }
    }
    begin = end;
  }
  aligned.apply(std::move(rewriter));
}

}  // namespace jerboa
