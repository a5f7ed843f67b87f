#include "runtime/rate_checks.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/transform/schedule.h>

namespace jerboa::detail {

void check_rates(const std::string& entry, const std::map<std::string, Rate>& rates, const TensorMap& inputs) {
  for (const auto& [input, rate] : rates) {
    try {
      check_rate(inputs.at(input).item(), rate == Rate::finite);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("entry {}: input {}: {}", entry, input, error.what()));
    }
  }
}

}  // namespace jerboa::detail
