#pragma once

#include <algorithm>
#include <string>
#include <string_view>

// Finds marks in text that arrives in pieces.
namespace jerboa::server {

constexpr std::string_view white_space = " \n\r\t";

inline bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}
inline bool may_become(std::string_view text, std::string_view whole) {
  return text.size() < whole.size() && starts_with(whole, text);
}

/// The length of the longest suffix of `text` that is a prefix of `mark`.
inline std::size_t held_length(std::string_view text, std::string_view mark) {
  for (std::size_t length = std::min(text.size(), mark.size() - 1); length > 0; --length)
    if (starts_with(mark, text.substr(text.size() - length))) return length;
  return 0;
}

inline void skip_white_space(std::string& text) {
  text.erase(0, std::min(text.find_first_not_of(white_space), text.size()));
}

}  // namespace jerboa::server
