#pragma once

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string>

namespace jerboa {

/// std::from_chars of a double, which some standard libraries, emscripten's among them, do not have.
inline std::from_chars_result read_double(const char* first, const char* last, double& value) {
#ifdef __cpp_lib_to_chars
  return std::from_chars(first, last, value);
#else
  if (first == last || *first == '+' || *first == ' ') return {first, std::errc::invalid_argument};
  const std::string text(first, last);
  char* end = nullptr;
  errno = 0;
  const double read = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return {first, std::errc::invalid_argument};
  const char* const stop = first + (end - text.c_str());
  if (errno == ERANGE) return {stop, std::errc::result_out_of_range};
  value = read;
  return {stop, std::errc{}};
#endif
}

}  // namespace jerboa
