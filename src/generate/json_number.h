#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "generate/grammar.h"

namespace jerboa {

/// A decimal number without exponent: sign, digits before the point, digits after it.
struct Decimal {
  bool negative = false;
  std::uint64_t whole = 0;
  std::string fraction;
};

struct NumberRange {
  std::optional<Decimal> low, high;
  bool low_exclusive = false, high_exclusive = false;
  bool integer = false;
  std::uint64_t multiple_of = 1;  // for integers
};

/// Adds the JSON numbers of a range, written without exponent: at most 18 digits before the point and 17 after it.
void add_number_range(Grammar& grammar, State from, State to, const NumberRange& range);

}  // namespace jerboa
