#include "lower/entry_checks.h"

#include <algorithm>

#include <jerboa/base/error.h>

#include "lower/invalid_program.h"

namespace jerboa::detail {

Rate rate_of(const Graph& graph, TensorId tensor) {
  const TensorInfo& input = graph.tensor(tensor);
  if (input.storage != Storage::input || input.type.dtype != DType::f32 || !input.type.shape.empty()) return Rate::none;
  for (const Node& node : graph.nodes) {
    const auto& operands = info(node.op).operands;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i].name == "lr" && node.inputs[i] == tensor) return Rate::not_negative;
  }
  return input.is_rate ? Rate::finite : Rate::none;
}

namespace {

void verify_output(const ProgramEntry& entry, const char* name, std::size_t count) {
  if (count == 0) return;
  const Shape wanted{Dim(static_cast<std::int64_t>(count))};
  const auto& outputs = entry.program.outputs;
  if (std::none_of(outputs.begin(), outputs.end(), [&](const Readable& output) {
        return output.name == name && output.dtype == DType::i32 && output.shape == wanted;
      }))
    fail_program("entry {}: the checks need the output {} of {} i32", entry.name, name, count);
}

}  // namespace

void verify_rates_and_checks(const ProgramEntry& entry) {
  for (const InputTensor& input : entry.inputs)
    if (input.rate != Rate::none && (input.dtype != DType::f32 || !input.shape.empty()))
      fail_program("entry {}: the rate {} is not one number", entry.name, input.name);
  verify_output(entry, finite_flags, entry.checks.finite.size());
  verify_output(entry, index_extremes, 2 * entry.checks.indices.size());
}

}  // namespace jerboa::detail
