#include "text/unicode.h"

#include <algorithm>
#include <utf8proc.h>

namespace jerboa::unicode {
namespace {

bool is_white_space(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

// Other_Alphabetic symbols: enclosed letters, which \w matches although their category is So.
bool is_enclosed_letter(char32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

std::uint8_t classify(char32_t code) {
  std::uint8_t bits = is_white_space(code) ? space : 0;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return bits | letter | word;
    case UTF8PROC_CATEGORY_MN: return bits | mark | nonspacing_mark | word;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return bits | mark | word;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: return bits | number | word;
    case UTF8PROC_CATEGORY_NO: return bits | number;
    case UTF8PROC_CATEGORY_PC: return bits | punctuation | word;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return bits | punctuation;
    case UTF8PROC_CATEGORY_CF:
      return static_cast<std::uint8_t>(bits | other | (code == 0x200C || code == 0x200D ? word : 0));
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return bits | other;
    default: return static_cast<std::uint8_t>(bits | (is_enclosed_letter(code) ? word : 0));
  }
}

}  // namespace

namespace detail {

ClassTable::ClassTable() {
  for (char32_t page = 0; page < block_of.size(); ++page) {
    std::array<std::uint8_t, 256> block;
    for (char32_t i = 0; i < block.size(); ++i) block[i] = classify(page << 8 | i);
    const auto found = std::find(blocks.begin(), blocks.end(), block);
    block_of[page] = static_cast<std::uint16_t>(found - blocks.begin());
    if (found == blocks.end()) blocks.push_back(block);
  }
}

const ClassTable& class_table() {
  static const ClassTable table;
  return table;
}

}  // namespace detail

bool is_ascii_punctuation(char32_t code) {
  return (code >= 0x21 && code <= 0x2F) || (code >= 0x3A && code <= 0x40) || (code >= 0x5B && code <= 0x60) ||
         (code >= 0x7B && code <= 0x7E);
}

bool is_cjk_ideograph(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B820 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

}  // namespace jerboa::unicode
