#include "text/jinja_text.h"

#include <algorithm>
#include <utf8proc.h>

namespace jerboa::jinja {
namespace {

// A byte that is not valid UTF-8 is represented as a lone surrogate, as in Python's surrogateescape.
constexpr char32_t escaped_byte = 0xDC00;

char32_t next_character(std::string_view text, std::size_t& position) {
  utf8proc_int32_t character = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + position;
  const auto size = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - position), &character);
  if (size <= 0) return escaped_byte + static_cast<unsigned char>(text[position++]);
  position += static_cast<std::size_t>(size);
  return static_cast<char32_t>(character);
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }
char32_t upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }
char32_t lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

template <typename Map>
std::string map_characters(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) map(out, next_character(text, i));
  return out;
}

void append_upper(std::string& out, char32_t c) {
  if (c == U'ß')
    out += "SS";
  else
    append_utf8(out, upper(c));
}

}  // namespace

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::size_t count_characters(std::string_view text) {
  if (is_ascii(text)) return text.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); ++count) next_character(text, i);
  return count;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) out += next_character(text, i);
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  if (c >= escaped_byte + 0x80 && c <= escaped_byte + 0xFF) {
    out += static_cast<char>(c - escaped_byte);
  } else if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::string to_upper(std::string_view text) { return map_characters(text, append_upper); }

std::string to_lower(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) { append_utf8(out, lower(c)); });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](std::string& out, char32_t c) {
    append_utf8(out, first ? upper(c) : lower(c));
    first = false;
  });
}

std::string title(std::string_view text) {
  bool inside_word = false;
  return map_characters(text, [&](std::string& out, char32_t c) {
    append_utf8(out, inside_word ? lower(c) : upper(c));
    inside_word = is_letter(c);
  });
}

std::string swap_case(std::string_view text) {
  return map_characters(text, [](std::string& out, char32_t c) {
    if (is_upper(c))
      append_utf8(out, lower(c));
    else
      append_upper(out, c);
  });
}

std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right) {
  const std::u32string set = decode_utf8(characters);
  const auto goes = [&](char32_t c) { return set.empty() ? is_space(c) : set.find(c) != std::u32string::npos; };
  while (left && !text.empty()) {
    std::size_t size = 0;
    if (!goes(next_character(text, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t end = start;
    char32_t last = next_character(text, end);
    if (end != text.size()) last = escaped_byte + static_cast<unsigned char>(text[start = text.size() - 1]);
    if (!goes(last)) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, std::int64_t count) {
  std::string out;
  std::size_t position = 0;
  if (from.empty()) {  // Python puts `to` before every character and at the end.
    for (; count != 0; --count) {
      out += to;
      if (position >= text.size()) return out;
      const std::size_t start = position;
      next_character(text, position);
      out += text.substr(start, position - start);
    }
    return out.append(text.substr(position));
  }
  for (; count != 0; --count) {
    const std::size_t found = text.find(from, position);
    if (found == std::string_view::npos) break;
    out.append(text, position, found - position).append(to);
    position = found + from.size();
  }
  return out.append(text.substr(position));
}

std::size_t replaced_size(std::string_view text, std::string_view from, std::string_view to) {
  if (to.size() <= from.size()) return text.size();
  if (from.empty()) return text.size() + (text.size() + 1) * to.size();
  std::size_t count = 0;
  for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, at + from.size())) ++count;
  return text.size() + count * (to.size() - from.size());
}

}  // namespace jerboa::jinja
