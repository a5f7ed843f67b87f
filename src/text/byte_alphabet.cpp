#include "text/byte_alphabet.h"

#include "text/utf8.h"

namespace jerboa {
namespace {

struct Alphabet {
  std::array<std::string, 256> spelling;
  std::array<int, 512> byte;

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t code = printable ? static_cast<char32_t>(b) : next++;
      spelling[static_cast<std::size_t>(b)] = utf8::encode(code);
      byte[code] = b;
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

const std::array<std::string, 256>& byte_alphabet() { return alphabet().spelling; }

std::optional<unsigned char> byte_of(char32_t code) {
  if (code >= alphabet().byte.size() || alphabet().byte[code] < 0) return std::nullopt;
  return static_cast<unsigned char>(alphabet().byte[code]);
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const utf8::Char c = utf8::decode(token, at);
    const auto byte = c.valid ? byte_of(c.code) : std::nullopt;
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += c.size;
  }
  return bytes;
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += byte_alphabet()[static_cast<unsigned char>(byte)];
  return out;
}

void spell_bytes(std::string_view text, Rewriter& out, Range range) {
  for (std::size_t at = range.begin; at < range.end;) {
    const std::size_t size = utf8::decode(text, at).size;
    out.replace(at, at + size, spell_bytes(text.substr(at, size)));
    at += size;
  }
}

std::optional<unsigned char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = hex_digit(token[3]);
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high << 4 | low);
}

}  // namespace jerboa
