#include "text/utf8.h"

#include <gtest/gtest.h>
#include <random>
#include <string>

#include "text/aligned_text.h"
#include "text/unicode_form.h"

namespace jerboa {
namespace {

TEST(Utf8, EveryCodePointComesBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    const std::string bytes = utf8::encode(code);
    const utf8::Char c = utf8::decode(bytes, 0);
    ASSERT_TRUE(c.valid && c.code == code && c.size == bytes.size()) << std::hex << static_cast<std::uint32_t>(code);
  }
}

TEST(Utf8, RejectsInvalidBytes) {
  for (const char* bytes : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                            "\xF4\x90\x80\x80", "\xF8\x88\x80\x80\x80", "\xE4\xBD", "\xFF"})
    EXPECT_FALSE(utf8::is_valid(bytes)) << bytes;
}

std::string assembled(std::string_view bytes, std::size_t piece) {
  utf8::Assembler assembler;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    assembler.push(bytes.substr(at, piece), out);
    EXPECT_TRUE(utf8::is_valid(out));
  }
  assembler.finish(out);
  return out;
}

TEST(Utf8, AssemblerReplacesMaximalSubparts) {
  // The example of the Unicode standard, table 3-8.
  EXPECT_EQ(assembled("a\xF1\x80\x80\xE1\x80\xC2"
                      "b\x80"
                      "c",
                      100),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc");
  EXPECT_EQ(assembled("\xE4\xBD", 1), "\uFFFD");
}

TEST(Utf8, AssemblerDoesNotDependOnThePieces) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (std::size_t i = random() % 20; i > 0; --i)
      bytes.push_back(static_cast<char>(random() % 2 ? random() : 0xE4 - random() % 4));
    const std::string whole = assembled(bytes, bytes.size() + 1);
    for (const std::size_t piece : {1, 2, 3}) EXPECT_EQ(assembled(bytes, piece), whole);
  }
}

std::string normalized(std::string_view text, UnicodeForm form) {
  AlignedText aligned(text);
  normalize(aligned, form);
  return std::string(aligned.text());
}

TEST(UnicodeForms, ComposeAndDecompose) {
  EXPECT_EQ(normalized("e\u0301 \u1112\u1161\u11ab", UnicodeForm::nfc), "é 한");
  EXPECT_EQ(normalized("é 한", UnicodeForm::nfd), "e\u0301 \u1112\u1161\u11ab");
  EXPECT_EQ(normalized("ﬁ①", UnicodeForm::nfkc), "fi1");
  EXPECT_EQ(normalized("ﬁé", UnicodeForm::nfkd), "fie\u0301");
  EXPECT_EQ(normalized("x\u0301\u0323", UnicodeForm::nfc), "x\u0323\u0301");
  EXPECT_EQ(normalized("e\xFF\u0301", UnicodeForm::nfc), "e\xFF\u0301");
}

TEST(UnicodeForms, AreStable) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 6; ++i) {
      auto code = static_cast<char32_t>(random() % 2 ? 0x300 + random() % 0x70 : random() % 0x2FA20);
      if (code >= 0xD800 && code < 0xE000) code = 'x';
      utf8::append(text, code);
    }
    const std::string composed = normalized(text, UnicodeForm::nfc);
    EXPECT_EQ(normalized(composed, UnicodeForm::nfc), composed);
    EXPECT_EQ(normalized(normalized(text, UnicodeForm::nfd), UnicodeForm::nfc), composed);
    EXPECT_EQ(normalized(composed, UnicodeForm::nfd), normalized(text, UnicodeForm::nfd));
  }
}

TEST(AlignedText, FollowsEditsThroughStages) {
  AlignedText text("one two");
  Rewriter first(text.text());
  first.prepend(0, "_");
  first.replace(3, 4, "___");
  text.apply(std::move(first));
  EXPECT_EQ(text.text(), "_one___two");
  Rewriter second(text.text());
  second.remove(0, 2);
  second.replace(7, 8, "TT");
  text.apply(std::move(second));
  EXPECT_EQ(text.text(), "ne___TTwo");
  EXPECT_EQ(text.original({0, 2}), (Range{1, 3}));
  EXPECT_EQ(text.original({3, 4}), (Range{3, 4}));
  EXPECT_EQ(text.original({6, 8}), (Range{4, 6}));
  EXPECT_EQ(text.original({0, 9}), (Range{1, 7}));
}

}  // namespace
}  // namespace jerboa
