#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "text/utf8.h"

namespace jerboa {
namespace {

// A pattern may come from a malicious file; ordinary ones need few steps per character.
constexpr std::uint32_t match_limit = 20'000'000;
constexpr std::uint32_t heap_limit_kib = 256 * 1024;
constexpr std::size_t max_pattern = std::size_t{64} * 1024;

// PCRE2 counts U+180E as a space, which Unicode has not done since version 6.3: tokenizers split by White_Space.
constexpr std::string_view spaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// PCRE2 also has fewer word characters than Oniguruma: no marks, no Latin-1 superscripts and fractions.
constexpr std::string_view word_characters = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

// Expands the classes that PCRE2 defines differently.
std::string translated(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      const bool space = escaped == 's' || escaped == 'S';
      const bool word = escaped == 'w' || escaped == 'W';
      const bool negated = escaped == 'S' || escaped == 'W';
      const std::string_view members = space ? spaces : word_characters;
      if ((space || word) && !in_class) {
        out += fmt::format("[{}{}]", negated ? "^" : "", members);
      } else if ((space || word) && !negated) {
        out += members;
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
    } else if (c == ']' && in_class) {
      in_class = false;
    }
    out += c;
  }
  return out;
}

std::string message_of(int code) {
#ifdef __EMSCRIPTEN__  // the messages would be downloaded by every visitor, for patterns that are in tokenizers alone
  return fmt::format("PCRE2's error {}", code);
#else
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
#endif
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

Regex::Regex(std::string_view pattern) : pattern_(pattern) {
  if (pattern.size() > max_pattern)
    throw UsageError(
        fmt::format("regular expression of {} bytes; at most {} are accepted", pattern.size(), max_pattern));
  const std::string ours = translated(pattern);
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (!code)
    throw UsageError(fmt::format("regular expression {}: {} (at byte {} of {})", in_quotes(pattern), message_of(error),
                                 place, in_quotes(ours)));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without a JIT, the interpreter runs
  code_ = std::shared_ptr<const void>(
      code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); });
}

std::vector<Range> Regex::find_all(std::string_view text) const {
  std::string sanitized;
  if (!utf8::is_valid(text)) {
    // PCRE2 accepts only valid UTF-8; replacing a byte by a control character keeps every offset.
    sanitized = text;
    for (std::size_t at = 0; at < text.size();) {
      const utf8::Char c = utf8::decode(text, at);
      if (!c.valid) sanitized[at] = '\x1A';
      at += c.size;
    }
    text = sanitized;
  }
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create_from_pattern(code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(pcre2_match_context_create(nullptr));
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), match_limit);
  pcre2_set_heap_limit(context.get(), heap_limit_kib);

  std::vector<Range> matches;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
  PCRE2_SIZE at = 0;
  while (at <= text.size()) {
    int result = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
      result =
          pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw UsageError(fmt::format("regular expression {} gave up at byte {} of the text: {}", in_quotes(pattern_), at,
                                   message_of(result)));
    }
    if (ends[1] < ends[0] || ends[0] < at) {  // \K in a look-around
      throw UsageError(fmt::format("regular expression {} matches backwards", in_quotes(pattern_)));
    }
    matches.push_back({static_cast<std::uint32_t>(ends[0]), static_cast<std::uint32_t>(ends[1])});
    at = ends[1];
    if (ends[0] == ends[1]) {
      if (at == text.size()) break;
      at += utf8::decode(text, at).size;
    }
  }
  return matches;
}

}  // namespace jerboa
