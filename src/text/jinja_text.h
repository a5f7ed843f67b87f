#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Python's view of a string, over UTF-8: characters are code points. A byte that is not UTF-8 counts as one character
// and survives every operation.
namespace jerboa::jinja {

bool is_ascii(std::string_view text);
std::size_t count_characters(std::string_view text);
std::u32string decode_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);
void append_utf8(std::string& out, char32_t character);

bool is_space(char32_t character);
bool is_letter(char32_t character);
bool is_digit(char32_t character);
bool is_upper(char32_t character);
bool is_lower(char32_t character);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
/// The first letter upper case, the rest lower case.
std::string capitalize(std::string_view text);
/// str.title(): a letter after a non-letter becomes upper case, any other lower case.
std::string title(std::string_view text);
std::string swap_case(std::string_view text);

/// Without the leading and trailing characters that are in `characters`, or white space if that is empty.
std::string_view strip(std::string_view text, std::string_view characters, bool left, bool right);

/// str.replace(): at most `count` times if that is not negative.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, std::int64_t count = -1);

/// The size of replace_all's result, so that a caller can refuse before allocating.
std::size_t replaced_size(std::string_view text, std::string_view from, std::string_view to);

}  // namespace jerboa::jinja
