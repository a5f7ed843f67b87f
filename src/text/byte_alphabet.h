#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "text/aligned_text.h"

namespace jerboa {

/// GPT-2's alphabet: every byte has a printable character, so that a vocabulary of byte strings can be written as text.
/// Printable Latin-1 characters stand for themselves, the other bytes for U+0100 and onwards.
const std::array<std::string, 256>& byte_alphabet();

/// The byte that a character of the alphabet stands for.
std::optional<unsigned char> byte_of(char32_t code);

/// The bytes that a token spells, or nothing if it has a character outside the alphabet.
std::optional<std::string> spelled_bytes(std::string_view token);

/// `bytes` written in the alphabet.
std::string spell_bytes(std::string_view bytes);

/// Writes the characters in `range` in the alphabet, each aligned with its whole spelling.
void spell_bytes(std::string_view text, Rewriter& out, Range range);

/// The byte of a fallback token, "<0xE4>".
std::optional<unsigned char> fallback_byte(std::string_view token);

}  // namespace jerboa
