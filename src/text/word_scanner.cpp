#include "text/word_scanner.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

constexpr std::uint8_t word_or_space = unicode::letter | unicode::number | unicode::space;

class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool ended(std::size_t at) const { return at >= text_.size(); }
  char byte(std::size_t at) const { return ended(at) ? '\0' : text_[at]; }

  /// The classes of the character at `at`, and where the next one begins. A byte that is not UTF-8 has no class.
  std::uint8_t classes(std::size_t at, std::size_t& next) const {
    const utf8::Char c = utf8::decode(text_, at);
    next = at + c.size;
    return c.valid ? classify_(c.code) : std::uint8_t{0};
  }

  /// The end of the run of characters from `at` whose classes, masked, equal `wanted`.
  template <std::uint8_t mask>
  std::size_t run(std::size_t at, bool wanted) const {
    std::size_t next = 0;
    while (!ended(at) && ((classes(at, next) & mask) != 0) == wanted) at = next;
    return at;
  }

  /// The length of a contraction ('s 't 're 've 'm 'll 'd) at `at`, or 0.
  std::size_t contraction(std::size_t at, bool any_case) const {
    if (byte(at) != '\'') return 0;
    const char fold = any_case ? 0x20 : 0;
    auto letter = [&](std::size_t i) { return static_cast<char>(byte(at + i) | (is_upper(byte(at + i)) ? fold : 0)); };
    const char a = letter(1);
    const char b = letter(2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    if (any_case && text_.substr(at + 1).starts_with("\u017F")) return 3;  // the long s is an s to (?i)
    return 0;
  }

  /// The end of the white space at `at`, minus the last character if a word follows: that one belongs to the word.
  std::size_t space(std::size_t at) const {
    const std::size_t end = run<unicode::space>(at, true);
    if (ended(end)) return end;
    const std::size_t last = utf8::previous(text_, end);
    return last > at ? last : end;
  }

 private:
  static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }

  std::string_view text_;
  unicode::Classes classify_;
};

std::size_t next_gpt2_word(const Cursor& text, std::size_t at) {
  if (const std::size_t size = text.contraction(at, false)) return at + size;
  std::size_t next = 0;
  std::size_t word = at;
  std::uint8_t first = text.classes(at, next);
  if (text.byte(at) == ' ' && !text.ended(next)) {
    word = next;
    first = text.classes(word, next);
  }
  if (first & unicode::letter) return text.run<unicode::letter>(next, true);
  if (first & unicode::number) return text.run<unicode::number>(next, true);
  if (!(first & unicode::space)) return text.run<word_or_space>(next, false);
  return text.space(at);
}

std::size_t next_cl100k_word(const Cursor& text, std::size_t at, std::uint32_t max_digits) {
  if (const std::size_t size = text.contraction(at, true)) return at + size;
  std::size_t next = 0;
  const std::uint8_t first = text.classes(at, next);
  const char byte = text.byte(at);
  if (first & unicode::letter) return text.run<unicode::letter>(next, true);
  if (first & unicode::number) {
    std::size_t end = next;
    for (std::uint32_t digits = 1; digits < max_digits && !text.ended(end); ++digits) {
      if (!(text.classes(end, next) & unicode::number)) break;
      end = next;
    }
    return end;
  }
  std::size_t after = 0;
  const std::uint8_t second = text.ended(next) ? std::uint8_t{unicode::space} : text.classes(next, after);
  if ((second & unicode::letter) && byte != '\r' && byte != '\n') return text.run<unicode::letter>(after, true);
  if (!(first & unicode::space) || (byte == ' ' && !(second & word_or_space))) {
    std::size_t end = text.run<word_or_space>(next, false);
    while (text.byte(end) == '\r' || text.byte(end) == '\n') ++end;
    return end;
  }
  // White space up to its last line break or, if there is none, as in space().
  const std::size_t end = text.run<unicode::space>(at, true);
  for (std::size_t i = end; i > at; --i) {
    if (text.byte(i - 1) == '\r' || text.byte(i - 1) == '\n') return i;
  }
  return text.space(at);
}

}  // namespace

std::optional<WordScanner> WordScanner::for_regex(std::string_view regex) {
  if (regex == gpt2_regex) return gpt2();
  constexpr std::string_view head = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
  constexpr std::string_view tail = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  if (!regex.starts_with(head) || !regex.ends_with(tail) || regex.size() < head.size() + tail.size())
    return std::nullopt;
  const std::string_view digits = regex.substr(head.size(), regex.size() - head.size() - tail.size());
  if (digits.empty()) return WordScanner(Family::cl100k, 1);
  if (digits == "{1,3}") return WordScanner(Family::cl100k, 3);
  return std::nullopt;
}

void WordScanner::split(std::string_view text, Range range, std::vector<Range>& words) const {
  const Cursor cursor(text.substr(0, range.end));
  for (std::size_t at = range.begin; at < range.end;) {
    const std::size_t end =
        family_ == Family::gpt2 ? next_gpt2_word(cursor, at) : next_cl100k_word(cursor, at, max_digits_);
    words.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)});
    at = end;
  }
}

}  // namespace jerboa
