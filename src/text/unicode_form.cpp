#include "text/unicode_form.h"

#include <cstdlib>
#include <memory>
#include <utf8proc.h>
#include <vector>

#include "text/utf8.h"

namespace jerboa {
namespace {

utf8proc_option_t options_of(UnicodeForm form) {
  constexpr auto stable = UTF8PROC_STABLE;
  switch (form) {
    case UnicodeForm::nfc: return static_cast<utf8proc_option_t>(stable | UTF8PROC_COMPOSE);
    case UnicodeForm::nfd: return static_cast<utf8proc_option_t>(stable | UTF8PROC_DECOMPOSE);
    case UnicodeForm::nfkc: return static_cast<utf8proc_option_t>(stable | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
    case UnicodeForm::nfkd: return static_cast<utf8proc_option_t>(stable | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  }
  return stable;
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

std::string normalized(std::string_view text, UnicodeForm form) {
  utf8proc_uint8_t* result = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  // The text is valid UTF-8, so the only possible failure is lack of memory.
  if (size < 0) throw std::bad_alloc();
  return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

// For each character and form, whether it is unchanged whatever its neighbours (inert), and whether the text before it
// can be normalized independently (boundary). The text between two boundaries is the smallest unit of normalization.
class FormTable {
 public:
  enum Bits : std::uint8_t { inert_bit = 1, boundary_bit = 2 };

  static const FormTable& instance() {
    static const FormTable table;
    return table;
  }

  std::uint8_t bits(char32_t code, UnicodeForm form) const {
    const int shift = 2 * static_cast<int>(form);
    return static_cast<std::uint8_t>(code < bits_.size() ? bits_[code] >> shift & 3 : inert_bit | boundary_bit);
  }

 private:
  // No character beyond the ideographs is affected by normalization.
  static constexpr utf8proc_int32_t end_code = 0x2FA20;

  FormTable() : bits_(end_code, 0) {
    const auto second = composes_with_previous();
    for (utf8proc_int32_t code = 0; code < end_code; ++code) {
      for (const auto form : {UnicodeForm::nfc, UnicodeForm::nfd, UnicodeForm::nfkc, UnicodeForm::nfkd}) {
        const bool composes = form == UnicodeForm::nfc || form == UnicodeForm::nfkc;
        utf8proc_int32_t parts[32];
        int last_class = 0;
        const auto options = static_cast<utf8proc_option_t>(options_of(form) & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE;
        const auto size =
            utf8proc_decompose_char(code, parts, 32, static_cast<utf8proc_option_t>(options), &last_class);
        if (size < 1) continue;
        const bool boundary =
            combining_class(parts[0]) == 0 && !(composes && second[static_cast<std::size_t>(parts[0])]);
        // A composing form keeps a canonical composite, although `parts` decomposes it.
        const bool alone = (size == 1 && parts[0] == code) ||
                           (composes && normalized(utf8::encode(static_cast<char32_t>(code)), form) ==
                                            utf8::encode(static_cast<char32_t>(code)));
        const bool inert = boundary && alone;
        bits_[static_cast<std::size_t>(code)] |=
            static_cast<std::uint8_t>((inert * inert_bit | boundary * boundary_bit) << 2 * static_cast<int>(form));
      }
    }
  }

  // Characters that may compose with the one before them.
  static std::vector<bool> composes_with_previous() {
    std::vector<bool> second(end_code, false);
    for (utf8proc_int32_t code = 0; code < end_code; ++code) {
      utf8proc_int32_t parts[32];
      int last_class = 0;
      const auto size = utf8proc_decompose_char(code, parts, 32, UTF8PROC_DECOMPOSE, &last_class);
      for (utf8proc_ssize_t i = 1; i < size; ++i) second[static_cast<std::size_t>(parts[i])] = true;
    }
    return second;
  }

  std::vector<std::uint8_t> bits_;
};

// Replaces only the part that differs, so that the surrounding characters keep their offsets.
void replace_difference(Rewriter& rewriter, std::string_view text, std::size_t begin, std::size_t end,
                        std::string_view result) {
  while (begin < end && !result.empty()) {
    const std::size_t size = utf8::decode(text, begin).size;
    if (!result.starts_with(text.substr(begin, size))) break;
    result.remove_prefix(size);
    begin += size;
  }
  while (begin < end && !result.empty()) {
    const std::size_t last = utf8::previous(text, end);
    if (!result.ends_with(text.substr(last, end - last))) break;
    result.remove_suffix(end - last);
    end = last;
  }
  rewriter.replace(begin, end, result);
}

}  // namespace

void normalize(AlignedText& aligned, UnicodeForm form) {
  const std::string_view text = aligned.text();
  const FormTable* table = nullptr;  // built for the first character that is not ASCII
  Rewriter rewriter(text);
  std::size_t boundary = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      boundary = at++;
      continue;
    }
    const utf8::Char first = utf8::decode(text, at);
    if (!table) table = &FormTable::instance();
    const std::uint8_t bits =
        first.valid ? table->bits(first.code, form) : FormTable::inert_bit | FormTable::boundary_bit;
    if (bits & FormTable::boundary_bit) boundary = at;
    at += first.size;
    if (bits & FormTable::inert_bit) {
      if (!first.valid) boundary = at;
      continue;
    }
    while (at < text.size()) {
      const utf8::Char next = utf8::decode(text, at);
      if (!next.valid || next.code < 0x80 || (table->bits(next.code, form) & FormTable::boundary_bit)) break;
      at += next.size;
    }
    replace_difference(rewriter, text, boundary, at, normalized(text.substr(boundary, at - boundary), form));
    boundary = at;
  }
  aligned.apply(std::move(rewriter));
}

}  // namespace jerboa
