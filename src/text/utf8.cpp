#include "text/utf8.h"

#include <cstring>

namespace jerboa::utf8 {

Sequence measure(std::string_view text, std::size_t& size) {
  const auto lead = static_cast<unsigned char>(text[0]);
  size = 1;
  if (lead < 0x80) return Sequence::complete;
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // overlong forms
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;  // beyond U+10FFFF
  } else {
    return Sequence::invalid;
  }
  for (; size < length; ++size) {
    if (size == text.size()) return Sequence::truncated;
    const auto byte = static_cast<unsigned char>(text[size]);
    if (byte < low || byte > high) return Sequence::invalid;
    low = 0x80;
    high = 0xBF;
  }
  return Sequence::complete;
}

Char decode_multibyte(std::string_view text, std::size_t at) {
  std::size_t size = 0;
  if (measure(text.substr(at), size) != Sequence::complete) return {replacement, 1, false};
  auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  if (size == 2) return {(byte(0) & 0x1F) << 6 | (byte(1) & 0x3F), 2, true};
  if (size == 3) return {(byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3, true};
  return {(byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4, true};
}

std::size_t previous(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  for (int i = 0; i < 3 && begin > 0 && is_continuation(text[begin]); ++i) --begin;
  return begin + decode(text, begin).size == end ? begin : end - 1;
}

void append(std::string& out, char32_t code) {
  auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string encode(char32_t code) {
  std::string out;
  append(out, code);
  return out;
}

std::size_t valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t block = 0;
    if (at + sizeof block <= text.size()) {
      std::memcpy(&block, text.data() + at, sizeof block);
      if ((block & 0x8080808080808080U) == 0) {
        at += sizeof block;
        continue;
      }
    }
    std::size_t size = 0;
    if (measure(text.substr(at), size) != Sequence::complete) return at;
    at += size;
  }
  return at;
}

std::size_t count(std::string_view text) {
  std::size_t characters = 0;
  for (const char byte : text) characters += !is_continuation(byte);
  return characters;
}

void Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined += bytes;
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const std::size_t good = valid_prefix(bytes);
    out += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    std::size_t size = 0;
    if (measure(bytes, size) == Sequence::truncated) {
      pending_ = bytes;
      return;
    }
    out += replacement_bytes;
    bytes.remove_prefix(size);
  }
}

void Assembler::finish(std::string& out) {
  if (!pending_.empty()) out += replacement_bytes;
  pending_.clear();
}

}  // namespace jerboa::utf8
