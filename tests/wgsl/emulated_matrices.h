#pragma once

#include <string>

namespace jerboa::test {

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// How many shaders of a program use emulated subgroup matrices. Steps that share a dispatch have one name, so that
/// names do not tell: each such shader, or part of one, sets the number of times that its loops run.
inline int emulated_matrix_shaders(const std::string& text) { return count_of(text, "sixteen = 16u + "); }

}  // namespace jerboa::test
