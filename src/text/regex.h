#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"

namespace jerboa {

/// A regular expression as tokenizer.json files write them (Oniguruma's syntax with Unicode classes), run by PCRE2.
class Regex {
 public:
  /// Throws UsageError with the place of the mistake when `pattern` is malformed.
  explicit Regex(std::string_view pattern);

  const std::string& pattern() const { return pattern_; }

  /// Every match, left to right, not overlapping. Bytes that are not UTF-8 count as one control character each.
  std::vector<Range> find_all(std::string_view text) const;

 private:
  std::string pattern_;
  std::shared_ptr<const void> code_;  // pcre2_code, shared by copies
};

}  // namespace jerboa
