#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace jerboa::unicode {

/// What tokenizers ask of a character, as bits, so that a scanner needs one look-up.
enum Class : std::uint8_t {
  kLetter = 1,           // L*
  kNumber = 2,           // N*
  kSpace = 4,            // White_Space
  kPunctuation = 8,      // P*
  kMark = 16,            // M*
  kNonspacingMark = 32,  // Mn
  kOther = 64,           // Cc, Cf, Co, Cs
  kWord = 128,           // regex \w: alphabetic, marks, decimal digits, connectors, joiners
};

namespace detail {
struct ClassTable {
  std::array<std::uint16_t, 0x1100> block_of;  // by code >> 8; equal pages share a block
  std::vector<std::array<std::uint8_t, 256>> blocks;
  ClassTable();
};
const ClassTable& class_table();
}  // namespace detail

/// Look-ups through a reference taken once, since the table is built on first use.
class Classes {
 public:
  Classes() : table_(detail::class_table()) {}
  std::uint8_t operator()(char32_t code) const { return table_.blocks[table_.block_of[code >> 8]][code & 0xFF]; }
  bool is(char32_t code, std::uint8_t classes) const { return ((*this)(code)&classes) != 0; }

 private:
  const detail::ClassTable& table_;
};

bool is_ascii_punctuation(char32_t code);

/// The ideographs that BERT separates from their neighbours.
bool is_cjk_ideograph(char32_t code);

}  // namespace jerboa::unicode
