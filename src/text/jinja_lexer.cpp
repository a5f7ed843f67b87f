#include "text/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fmt/core.h>
#include <utility>

#include <jerboa/text/template_limits.h>

#include "text/jinja_text.h"

namespace jerboa::jinja {
namespace {

constexpr std::string_view white_space = " \t\n\r\f\v";

// Longest first, so that the first match is the right one.
constexpr std::array<std::string_view, 26> operators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool is_name_part(char c) { return is_name_start(c) || is_decimal(c); }

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (position_ < text_.size()) data();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(text_).substr(position_); }
  bool at(std::string_view prefix) const { return rest().substr(0, prefix.size()) == prefix; }
  [[noreturn]] void fail(const std::string& message) const { throw TemplateError(line_, message); }

  Token& add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
    return tokens_.back();
  }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(position_ + count), '\n'));
    position_ += count;
  }

  void skip_space() { advance(std::min(rest().find_first_not_of(white_space), rest().size())); }

  // Text up to the next tag, and then that tag.
  void data() {
    std::size_t tag = position_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) return emit_data(text_.size());
      const char kind = text_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    emit_data(trimmed_end(position_, tag, kind, sign));
    advance(tag - position_);
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin);
    advance(2 + (sign == '-' || sign == '+'));
    expression(kind == '{' ? "}}" : "%}", kind == '{');
  }

  // Where the text [begin, tag) ends once the white space before the tag is stripped.
  std::size_t trimmed_end(std::size_t begin, std::size_t tag, char kind, char sign) const {
    const std::string_view before = std::string_view(text_).substr(begin, tag - begin);
    if (sign == '-') return begin + strip(before, "", false, true).size();
    if (sign == '+' || kind == '{') return tag;
    const std::size_t newline = before.rfind('\n');
    if (newline == std::string_view::npos && begin > 0 && text_[begin - 1] != '\n') return tag;
    const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    if (before.find_first_not_of(white_space, line_start) != std::string_view::npos) return tag;
    return begin + line_start;
  }

  void emit_data(std::size_t end) {
    if (end > position_) add(TokenKind::data, text_.substr(position_, end - position_));
    advance(end - position_);
  }

  // After an end tag: "-" takes all white space, a plain block end one newline.
  void after_tag(char sign, bool trim_newline) {
    if (sign == '-')
      skip_space();
    else if (sign != '+' && trim_newline && at("\n"))
      advance(1);
  }

  void comment() {
    const std::size_t body = position_ + 2 + (rest().substr(2, 1) == "-" || rest().substr(2, 1) == "+");
    const std::size_t end = text_.find("#}", body);
    if (end == std::string::npos) fail("a comment is not closed: '#}' is missing");
    const char sign = end > body ? text_[end - 1] : '\0';
    advance(end + 2 - position_);
    after_tag(sign, true);
  }

  // {% raw %} … {% endraw %}, if the tag here is that.
  bool raw() {
    const auto tag_named = [&](std::size_t at, std::string_view name, std::size_t& end, char& close_sign) {
      std::size_t i = at + 2;
      if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) ++i;
      i = std::min(text_.find_first_not_of(white_space, i), text_.size());
      if (text_.compare(i, name.size(), name) != 0) return false;
      i = std::min(text_.find_first_not_of(white_space, i + name.size()), text_.size());
      close_sign = i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i++] : '\0';
      end = i + 2;
      return text_.compare(i, 2, "%}") == 0;
    };
    std::size_t body = 0;
    char sign = '\0';
    if (!tag_named(position_, "raw", body, sign)) return false;
    advance(body - position_);
    after_tag(sign, false);
    for (std::size_t tag = text_.find("{%", position_); tag != std::string::npos; tag = text_.find("{%", tag + 2)) {
      std::size_t end = 0;
      if (!tag_named(tag, "endraw", end, sign)) continue;
      emit_data(trimmed_end(position_, tag, '%', tag + 2 < text_.size() ? text_[tag + 2] : '\0'));
      advance(end - position_);
      after_tag(sign, true);
      return true;
    }
    fail("'endraw' is missing");
  }

  void expression(std::string_view close, bool variable) {
    std::string open;  // the brackets to close, innermost last
    for (;;) {
      skip_space();
      if (position_ >= text_.size()) fail(fmt::format("a tag is not closed: '{}' is missing", close));
      if (open.empty()) {
        const bool signed_close = (at("-") || (!variable && at("+"))) && rest().substr(1, 2) == close;
        if (signed_close || at(close)) {
          const char sign = signed_close ? text_[position_] : '\0';
          add(variable ? TokenKind::variable_end : TokenKind::block_end);
          advance(signed_close ? 3 : 2);
          after_tag(sign, !variable);
          return;
        }
      }
      const char c = text_[position_];
      if (is_name_start(c))
        name();
      else if (is_decimal(c))
        number();
      else if (c == '"' || c == '\'')
        string(c);
      else
        op(open);
    }
  }

  void name() {
    std::size_t end = position_;
    while (end < text_.size() && is_name_part(text_[end])) ++end;
    add(TokenKind::name, text_.substr(position_, end - position_));
    advance(end - position_);
  }

  std::size_t digits(std::size_t from) const {
    while (from < text_.size() && (is_decimal(text_[from]) || text_[from] == '_')) ++from;
    return from;
  }

  void number() {
    const auto prefix = rest().substr(0, 2);
    const int base = prefix == "0x" || prefix == "0X"   ? 16
                     : prefix == "0o" || prefix == "0O" ? 8
                     : prefix == "0b" || prefix == "0B" ? 2
                                                        : 10;
    std::size_t end = base == 10 ? digits(position_) : position_ + 2;
    bool floating = false;
    if (base == 10) {
      if (end + 1 < text_.size() && text_[end] == '.' && is_decimal(text_[end + 1])) {
        floating = true;
        end = digits(end + 1);
      }
      std::size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E') && exponent < text_.size() &&
          is_decimal(text_[exponent])) {
        floating = true;
        end = digits(exponent);
      }
    } else {
      while (end < text_.size() && is_name_part(text_[end])) ++end;
    }
    std::string literal = text_.substr(position_, end - position_);
    std::erase(literal, '_');
    Token& token = add(floating ? TokenKind::floating : TokenKind::integer, literal);
    if (floating) {
      token.number = std::strtod(literal.c_str(), nullptr);
    } else {
      const char* first = literal.data() + (base == 10 ? 0 : 2);
      const char* last = literal.data() + literal.size();
      const auto [stop, error] = std::from_chars(first, last, token.integer, base);
      if (error != std::errc{} || stop != last) fail(fmt::format("'{}' is not a 64-bit integer", literal));
    }
    advance(end - position_);
  }

  void string(char mark) {
    std::size_t end = position_ + 1;
    while (end < text_.size() && text_[end] != mark) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a string is not closed");
    add(TokenKind::string, unescape(std::string_view(text_).substr(position_ + 1, end - position_ - 1)));
    advance(end + 1 - position_);
  }

  // Python's escapes; a backslash before anything else stays.
  std::string unescape(std::string_view body) const {
    std::string out;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (body[i] != '\\' || i + 1 >= body.size()) {
        out += body[i];
        continue;
      }
      const char c = body[++i];
      constexpr std::string_view names = "abfnrtv\\'\"";
      constexpr std::string_view values = "\a\b\f\n\r\t\v\\'\"";
      if (const auto found = names.find(c); found != std::string_view::npos) {
        out += values[found];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, code_point(body.substr(i + 1, count), 16, count));
        i += count;
      } else if (c >= '0' && c <= '7') {
        std::size_t count = 1;
        while (count < 3 && i + count < body.size() && body[i + count] >= '0' && body[i + count] <= '7') ++count;
        append_utf8(out, code_point(body.substr(i, count), 8, count));
        i += count - 1;
      } else if (c != '\n') {
        (out += '\\') += c;
      }
    }
    return out;
  }

  char32_t code_point(std::string_view digits, int base, std::size_t count) const {
    std::uint32_t value = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.size() != count || error != std::errc{} || stop != digits.data() + count || value > 0x10FFFF)
      fail("a string has a malformed escape");
    return value;
  }

  void op(std::string& open) {
    for (const std::string_view candidate : operators) {
      if (!at(candidate)) continue;
      const char c = candidate[0];
      if (c == '(' || c == '[' || c == '{') {
        open += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (open.empty()) fail(fmt::format("unexpected '{}'", c));
        if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
        open.pop_back();
      }
      add(TokenKind::op, std::string(candidate));
      advance(candidate.size());
      return;
    }
    if (at("!")) fail("unexpected '!'");
    fail(fmt::format("unexpected character '{}'", rest().substr(0, 1)));
  }

  std::string text_;
  std::size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace jerboa::jinja
