#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace jerboa::utf8 {

inline constexpr char32_t replacement = 0xFFFD;
inline constexpr std::string_view replacement_bytes = "\xEF\xBF\xBD";
inline constexpr std::string_view metaspace = "\u2581";  ///< "▁", which stands for a space in SentencePiece's tokens

/// One step through a text. A byte that begins no valid sequence is a Char of size 1 with the replacement code.
struct Char {
  char32_t code = 0;
  std::uint32_t size = 1;
  bool valid = true;
};

enum class Sequence { complete, truncated, invalid };

/// The sequence at the start of `text` (not empty): its status and its number of bytes. For an invalid or truncated one
/// these are the bytes that one U+FFFD replaces (the Unicode standard's "maximal subpart").
Sequence measure(std::string_view text, std::size_t& size);

Char decode_multibyte(std::string_view text, std::size_t at);

inline Char decode(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 0x80 ? Char{byte, 1, true} : decode_multibyte(text, at);
}

inline bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Where the character that ends at `end` begins.
std::size_t previous(std::string_view text, std::size_t end);

void append(std::string& out, char32_t code);
std::string encode(char32_t code);

/// How many bytes from the start are valid UTF-8.
std::size_t valid_prefix(std::string_view text);
inline bool is_valid(std::string_view text) { return valid_prefix(text) == text.size(); }

/// Number of characters of a valid text.
std::size_t count(std::string_view text);

/// Assembles bytes that arrive in pieces into valid UTF-8: a character is emitted once it is complete, and invalid
/// bytes become U+FFFD.
class Assembler {
 public:
  void push(std::string_view bytes, std::string& out);
  void finish(std::string& out);

 private:
  std::string pending_;
};

}  // namespace jerboa::utf8
