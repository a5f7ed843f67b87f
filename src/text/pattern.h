#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/json_view.h"
#include "text/regex.h"

namespace jerboa {

/// The pattern of a Replace or a Split: a literal string or a regular expression.
class Pattern {
 public:
  explicit Pattern(std::string literal) : what_(std::move(literal)) {}
  explicit Pattern(Regex regex) : what_(std::move(regex)) {}
  /// From {"String": …} or {"Regex": …}.
  static Pattern parse(const JsonView& json);

  std::vector<Range> find_all(std::string_view text) const;
  /// The regular expression's text, or "" for a literal.
  std::string_view regex() const;

 private:
  std::variant<std::string, Regex> what_;
};

/// Every occurrence of `from` becomes `to`.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace jerboa
