#include "runtime/rate_checks.h"

#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/transform/schedule.h>

namespace jerboa::detail {

std::set<std::string> find_rates(const Graph& graph) {
  std::set<std::string> rates;
  for (const Node& node : graph.nodes) {
    const auto& operands = info(node.op).operands;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i].name == "lr" && graph.tensor(node.inputs[i]).storage == Storage::input)
        rates.insert(graph.tensor(node.inputs[i]).name);
  }
  return rates;
}

void check_rates(const std::string& entry, const std::set<std::string>& rates, const TensorMap& inputs) {
  for (const std::string& rate : rates) {
    try {
      check_rate(inputs.at(rate).item());
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("entry {}: input {}: {}", entry, rate, error.what()));
    }
  }
}

}  // namespace jerboa::detail
