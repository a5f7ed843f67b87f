#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "generate/schema_error.h"

namespace jerboa {

/// Bounds the work of compiling one schema, whose references and alternatives may multiply it.
class SchemaBudget {
 public:
  /// Counts parts copied or compared. Throws ConstraintError with the place and the reason if they are too many.
  void spend(std::size_t parts, const std::string& path, std::string_view reason) {
    constexpr std::size_t most = 5'000'000;  // about a second
    spent_ += parts;
    if (spent_ > most) refuse_schema(path, reason);
  }

 private:
  std::size_t spent_ = 0;
};

}  // namespace jerboa
