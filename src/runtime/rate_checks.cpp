#include "runtime/rate_checks.h"

#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/transform/schedule.h>

namespace jerboa::detail {

std::vector<InputRate> find_rates(const Graph& graph) {
  std::set<TensorId> taken_by_ops;
  for (const Node& node : graph.nodes) {
    const auto& operands = info(node.op).operands;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i].name == "lr") taken_by_ops.insert(node.inputs[i]);
  }
  std::vector<InputRate> rates;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorInfo& tensor = graph.tensors[i];
    const bool taken = taken_by_ops.contains(static_cast<TensorId>(i));
    if (tensor.storage == Storage::input && tensor.type == TensorType{DType::f32, {}} && (tensor.is_rate || taken))
      rates.push_back({tensor.name, !taken});
  }
  return rates;
}

void check_rates(const std::string& entry, const std::vector<InputRate>& rates, const TensorMap& inputs) {
  for (const auto& [input, may_be_negative] : rates) {
    try {
      check_rate(inputs.at(input).item(), may_be_negative);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("entry {}: input {}: {}", entry, input, error.what()));
    }
  }
}

}  // namespace jerboa::detail
