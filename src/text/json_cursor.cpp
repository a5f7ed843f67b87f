#include "text/json_cursor.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "base/read_double.h"
#include "text/utf8.h"

namespace jerboa {

void JsonCursor::fail(std::string_view message) const {
  const auto line =
      1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
  throw FileError(fmt::format("{}:{}: {} (byte {})", name_, line, message, at_));
}

void JsonCursor::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

char JsonCursor::peek() {
  skip_space();
  if (at_ == text_.size()) fail("the file ends in the middle of a value");
  return text_[at_];
}

bool JsonCursor::consume(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

void JsonCursor::finish() {
  skip_space();
  if (at_ != text_.size()) fail("unexpected text after the end of the value");
}

void JsonCursor::expect(char c) {
  if (!consume(c)) fail(fmt::format("expected '{}'", c));
}

void JsonCursor::begin_object() {
  expect('{');
  first_ = true;
}

void JsonCursor::begin_array() {
  expect('[');
  first_ = true;
}

bool JsonCursor::next(char close) {
  const bool first = first_;
  first_ = false;
  if (consume(close)) return false;
  if (!first) expect(',');
  return true;
}

bool JsonCursor::next_key(std::string_view& key) {
  if (!next('}')) return false;
  key = string();
  expect(':');
  return true;
}

bool JsonCursor::next_element() { return next(']'); }

std::string_view JsonCursor::string() {
  expect('"');
  const std::size_t begin = at_;
  const auto plain = [](char c) { return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20; };
  while (at_ < text_.size() && plain(text_[at_])) ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(begin, at_++ - begin);

  unescaped_ = text_.substr(begin, at_ - begin);
  const auto hex4 = [&]() -> char32_t {
    std::uint32_t code = 0;
    const char* end = text_.data() + std::min(at_ + 4, text_.size());
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, code, 16);
    if (error != std::errc() || stop != text_.data() + at_ + 4) fail("malformed \\u escape");
    at_ += 4;
    return code;
  };
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_];
    if (plain(c)) {
      unescaped_ += c;
      ++at_;
      continue;
    }
    if (c != '\\' || at_ + 1 == text_.size()) fail("control character in a string");
    const char escape = text_[at_ + 1];
    at_ += 2;
    constexpr std::string_view names = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    if (const auto index = names.find(escape); index != std::string_view::npos) {
      unescaped_ += meanings[index];
    } else if (escape == 'u') {
      char32_t code = hex4();
      if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_).starts_with("\\u")) {
        at_ += 2;
        const char32_t low = hex4();
        if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      } else if (code >= 0xD800 && code < 0xE000) {
        fail("half of a surrogate pair");
      }
      utf8::append(unescaped_, code);
    } else {
      fail(fmt::format("unknown escape '\\{}'", escape));
    }
  }
  if (at_ == text_.size()) fail("unterminated string");
  ++at_;
  return unescaped_;
}

std::string_view JsonCursor::literal() {
  skip_space();
  const std::size_t begin = at_;
  const auto part = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
  };
  while (at_ < text_.size() && part(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::int64_t JsonCursor::integer() {
  const std::string_view text = literal();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) fail("expected an integer");
  return value;
}

double JsonCursor::number() {
  const std::string_view text = literal();
  double value = 0;
  if (text.find_first_of("nN") != std::string_view::npos) fail("expected a number");  // inf and nan
  const auto [stop, error] = read_double(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail(fmt::format("the number {} is out of range", shortened(text, 40)));
  if (error != std::errc() || stop != text.data() + text.size()) fail("expected a number");
  return value;
}

bool JsonCursor::boolean() {
  const std::string_view text = literal();
  if (text != "true" && text != "false") fail("expected true or false");
  return text == "true";
}

bool JsonCursor::null() {
  if (peek() != 'n') return false;
  if (literal() != "null") fail("expected null");
  return true;
}

std::string_view JsonCursor::skip_value() {
  skip_space();
  const std::size_t begin = at_;
  std::size_t depth = 0;
  do {
    const char c = peek();
    if (c == '"') {
      string();
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at_;
    } else if (c == '}' || c == ']') {
      if (depth == 0) fail("expected a value");
      --depth;
      ++at_;
    } else if (c == ',' || c == ':') {
      if (depth == 0) fail("expected a value");
      ++at_;
    } else if (literal().empty()) {
      fail(fmt::format("unexpected character '{}'", c));
    }
  } while (depth > 0);
  first_ = false;
  return text_.substr(begin, at_ - begin);
}

}  // namespace jerboa
