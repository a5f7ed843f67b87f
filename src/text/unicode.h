#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace jerboa::unicode {

/// The properties of a character that tokenizers need, as bits, so that a scanner needs a single lookup.
enum Class : std::uint8_t {
  letter = 1,            // L*
  number = 2,            // N*
  space = 4,             // White_Space
  punctuation = 8,       // P*
  mark = 16,             // M*
  nonspacing_mark = 32,  // Mn
  other = 64,            // Cc, Cf, Co, Cs
  word = 128,            // regex \w: alphabetic, marks, decimal digits, connectors, joiners
};

namespace detail {
struct ClassTable {
  std::array<std::uint16_t, 0x1100> block_of;  // by code >> 8; equal pages share a block
  std::vector<std::array<std::uint8_t, 256>> blocks;
  ClassTable();
};
const ClassTable& class_table();
}  // namespace detail

/// Looks up classes through a reference taken once, since the table is built on first use.
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
