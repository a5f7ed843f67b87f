#pragma once

#include <cstddef>
#include <string>

#include <jerboa/base/error.h>

namespace jerboa {

/// A chat template that cannot be parsed or rendered: "chat template, line 12: unknown filter 'foo'".
class TemplateError : public Error {
 public:
  TemplateError(int line, const std::string& message);
  /// The line of the template, from 1.
  int line() const { return line_; }

 private:
  int line_;
};

/// The budget of a template; exceeding it throws TemplateError.
struct TemplateLimits {
  std::size_t steps = 5'000'000;              ///< expressions and statements evaluated
  std::size_t bytes = std::size_t{64} << 20;  ///< of output and all intermediate values together
  int depth = 64;                             ///< nested calls of macros and recursive loops
};

}  // namespace jerboa
