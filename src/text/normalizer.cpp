#include "text/normalizer.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include "text/byte_alphabet.h"
#include "text/nesting.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace jerboa {
namespace normalizers {
namespace {

// Calls edit(rewriter, character, begin, end) for each valid character; characters that it does not edit stay.
template <typename EditChar>
void edit_characters(AlignedText& aligned, EditChar edit) {
  const std::string_view text = aligned.text();
  Rewriter rewriter(text);
  for (std::size_t at = 0; at < text.size();) {
    const utf8::Char c = utf8::decode(text, at);
    if (c.valid) edit(rewriter, c.code, at, at + c.size);
    at += c.size;
  }
  aligned.apply(std::move(rewriter));
}

void remove_class(AlignedText& text, std::uint8_t classes) {
  const unicode::Classes classify;
  edit_characters(text, [&](Rewriter& out, char32_t c, std::size_t begin, std::size_t end) {
    if (classify.is(c, classes)) out.remove(begin, end);
  });
}

}  // namespace

void Lowercase::apply(AlignedText& text) const {
  edit_characters(text, [](Rewriter& out, char32_t c, std::size_t begin, std::size_t end) {
    if (c == 0x130) {  // the one character whose lower case is two
      out.replace(begin, end, "i\u0307");
      return;
    }
    const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    if (lower != c) out.replace(begin, end, utf8::encode(lower));
  });
}

void Strip::apply(AlignedText& aligned) const {
  const unicode::Classes classify;
  const std::string_view text = aligned.text();
  std::size_t begin = 0;
  std::size_t end = text.size();
  while (left && begin < end) {
    const utf8::Char c = utf8::decode(text, begin);
    if (!classify.is(c.code, unicode::space)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    const std::size_t at = utf8::previous(text, end);
    if (!classify.is(utf8::decode(text, at).code, unicode::space)) break;
    end = at;
  }
  Rewriter rewriter(text);
  rewriter.remove(0, begin);
  rewriter.remove(end, text.size());
  aligned.apply(std::move(rewriter));
}

void StripAccents::apply(AlignedText& text) const { remove_class(text, unicode::mark); }

void Replace::apply(AlignedText& text) const {
  Rewriter rewriter(text.text());
  for (const Range match : pattern.find_all(text.text())) rewriter.replace(match.begin, match.end, content);
  text.apply(std::move(rewriter));
}

void Prepend::apply(AlignedText& text) const {
  if (text.text().empty()) return;
  Rewriter rewriter(text.text());
  rewriter.prepend(0, prepend);
  text.apply(std::move(rewriter));
}

void Bert::apply(AlignedText& text) const {
  if (clean_text || handle_chinese_chars) {
    const unicode::Classes classify;
    edit_characters(text, [&](Rewriter& out, char32_t c, std::size_t begin, std::size_t end) {
      const bool line_or_tab = c == '\t' || c == '\n' || c == '\r';
      if (clean_text && (c == utf8::replacement || (classify.is(c, unicode::other) && !line_or_tab))) {
        out.remove(begin, end);
      } else if (clean_text && classify.is(c, unicode::space)) {
        out.replace(begin, end, " ");
      } else if (handle_chinese_chars && unicode::is_cjk_ideograph(c)) {
        out.replace(begin, end, fmt::format(" {} ", utf8::encode(c)));
      }
    });
  }
  if (strip_accents) {
    normalize(text, UnicodeForm::nfd);
    remove_class(text, unicode::nonspacing_mark);
  }
  if (lowercase) Lowercase{}.apply(text);
}

void Nmt::apply(AlignedText& text) const {
  edit_characters(text, [](Rewriter& out, char32_t c, std::size_t begin, std::size_t end) {
    if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
      out.remove(begin, end);
    } else if (c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
               c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD) {
      out.replace(begin, end, " ");
    }
  });
}

void ByteLevel::apply(AlignedText& text) const {
  Rewriter rewriter(text.text());
  spell_bytes(text.text(), rewriter, {0, static_cast<std::uint32_t>(text.text().size())});
  text.apply(std::move(rewriter));
}

}  // namespace normalizers

void Normalizer::apply(AlignedText& text) const {
  for (const Step& step : steps_) std::visit([&](const auto& s) { s.apply(text); }, step);
}

std::string Normalizer::apply(std::string_view text) const {
  AlignedText aligned(text);
  apply(aligned);
  return std::string(aligned.text());
}

Normalizer Normalizer::parse(const JsonView& json) {
  Normalizer normalizer;
  normalizer.parse_into(json, 0);
  return normalizer;
}

void Normalizer::parse_into(const JsonView& json, int depth) {
  check_nesting(json, depth);
  const std::string type = json.string("type");
  if (type == "Sequence") {
    const JsonView list = json.at("normalizers");
    for (std::size_t i = 0; i < list.size(); ++i) parse_into(list.at(i), depth + 1);
  } else if (type == "NFC") {
    add(normalizers::Form{UnicodeForm::nfc});
  } else if (type == "NFD") {
    add(normalizers::Form{UnicodeForm::nfd});
  } else if (type == "NFKC") {
    add(normalizers::Form{UnicodeForm::nfkc});
  } else if (type == "NFKD") {
    add(normalizers::Form{UnicodeForm::nfkd});
  } else if (type == "Lowercase") {
    add(normalizers::Lowercase{});
  } else if (type == "Strip") {
    add(normalizers::Strip{json.boolean("strip_left", true), json.boolean("strip_right", true)});
  } else if (type == "StripAccents") {
    add(normalizers::StripAccents{});
  } else if (type == "Replace") {
    add(normalizers::Replace{Pattern::parse(json.at("pattern")), json.string("content")});
  } else if (type == "Prepend") {
    add(normalizers::Prepend{json.string("prepend")});
  } else if (type == "BertNormalizer") {
    const bool lowercase = json.boolean("lowercase", true);
    add(normalizers::Bert{json.boolean("clean_text", true), json.boolean("handle_chinese_chars", true),
                          json.boolean("strip_accents", lowercase), lowercase});
  } else if (type == "Nmt") {
    add(normalizers::Nmt{});
  } else if (type == "ByteLevel") {
    add(normalizers::ByteLevel{});
  } else if (type == "Precompiled") {
    const JsonView charsmap = json.at("precompiled_charsmap");
    add(normalizers::Precompiled{
        std::make_shared<Charsmap>(Charsmap::from_base64(charsmap.string(), charsmap.path()))});
  } else {
    json.fail(fmt::format("unknown normalizer \"{}\"", type));
  }
}

}  // namespace jerboa
