#pragma once

#include <memory>
#include <string>
#include <vector>

#include <jerboa/generate/constraint.h>

namespace jerboa {

inline constexpr int end_token = 256;

/// Every byte, an end token, and pieces that cross the token boundaries of a grammar.
inline std::shared_ptr<const Vocabulary> test_vocabulary() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 256; ++i) tokens.emplace_back(1, static_cast<char>(i));
  tokens.emplace_back("<end>");
  for (const char* piece : {"{\"",   "\":",  "\": ",  "\",",  "\", \"", "},",         "}]",       "[{",   "]]",  "true",
                            "false", "null", "nul",   ", ",   "12",     "00",         "-1",       "1.",   ".5",  "e1",
                            "name",  "na",   "me\":", " the", "é",      "日本",       "\xE6\x97", "\xA5", "\\n", "\\u",
                            "\\u00", "\"}",  "\"]",   "\n  ", "2024-",  "kind\": \"", "[[[",      "abc",  "a",   "0"})
    tokens.emplace_back(piece);
  return std::make_shared<const Vocabulary>(tokens, std::vector<int>{end_token});
}

/// Whether the grammar accepts the whole text.
inline bool matches(const std::shared_ptr<const Grammar>& grammar, const std::string& text) {
  static const auto vocabulary = test_vocabulary();
  const auto constraint = make_constraint(grammar, vocabulary);
  try {
    for (const char c : text) constraint->accept(static_cast<unsigned char>(c));
  } catch (const ConstraintError&) {
    return false;
  }
  return constraint->complete();
}

}  // namespace jerboa
