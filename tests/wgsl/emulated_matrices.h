#pragma once

#include <string>

namespace jerboa::test {

/// How many shaders of a program use emulated subgroup matrices. Steps that share a dispatch have one name, so that
/// names do not tell: each such shader, or part of one, sets the number of times that its loops run.
inline int emulated_matrix_shaders(const std::string& text) {
  constexpr const char* mark = "sixteen = min(";
  int count = 0;
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++count;
  return count;
}

}  // namespace jerboa::test
