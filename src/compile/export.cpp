#include <algorithm>
#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/compile/export.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/lower/lower.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "compile/initialize.h"
#include "compile/optimizer_uses.h"
#include "compile/stored_type.h"
#include "lower/entry_checks.h"
#include "lower/input_indices.h"

namespace jerboa {
namespace {

void declare(std::vector<PersistentTensor>& storage, const TensorInfo& tensor, const std::string& entry) {
  const bool is_param = tensor.storage == Storage::param;
  if ((!is_param && tensor.storage != Storage::state) || !tensor.tied_to.empty()) return;
  const auto known =
      std::find_if(storage.begin(), storage.end(), [&](const auto& other) { return other.name == tensor.name; });
  if (known == storage.end()) {
    storage.push_back({tensor.name, tensor.type.dtype, tensor.type.shape, is_param, tensor.init});
    return;
  }
  if (TensorType{known->dtype, known->shape} != tensor.type || known->is_param != is_param)
    throw UsageError(fmt::format("{} is {} in entry {}, but another entry has it as {}", tensor.name,
                                 to_string(tensor.type), entry, to_string(TensorType{known->dtype, known->shape})));
}

// Describes the checks that it compiles in `described`.
Program lowered(const Graph& graph, const Target& target, const Checks& checks, RunChecks& described) {
  if (!checks.any()) return lower(graph, target);
  CheckedGraph checked = with_checks(graph, checks);
  described = std::move(checked.checks);
  return lower(checked.graph, target);
}

}  // namespace

ProgramFile compile_program(const std::vector<std::pair<std::string, Graph>>& entries, const Target& target,
                            const Checks& checks) {
  ProgramFile file;
  file.target = target.name;
  std::set<std::string> names;
  detail::OptimizerUses optimizers;
  for (const auto& [name, graph] : entries) {
    if (!names.insert(name).second) throw UsageError(fmt::format("two entries are named {}", name));
    verify(graph);
    optimizers.add(name, graph);
    RunChecks run_checks;
    Program program = lowered(graph, target, checks, run_checks);
    ProgramEntry entry{name,
                       {},
                       detail::find_input_indices(graph),
                       std::move(program),

                       std::move(run_checks)};
    if (target.name == Target::webgpu_default().name) emit_wgsl(entry.program, target);
    for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
      const TensorInfo& tensor = graph.tensors[i];
      declare(file.storage, tensor, name);
      if (tensor.storage == Storage::input)
        entry.inputs.push_back(
            {tensor.name, tensor.type.dtype, tensor.type.shape, detail::rate_of(graph, static_cast<TensorId>(i))});
    }
    file.entries.push_back(std::move(entry));
  }
  return file;
}

void save_initial_params(const std::filesystem::path& path, const ProgramFile& program, std::uint64_t seed) {
  std::vector<HostTensor> values;
  std::vector<TensorView> views;
  values.reserve(program.storage.size());
  for (const PersistentTensor& tensor : program.storage) {
    if (!tensor.is_param) continue;
    const HostTensor& host = values.emplace_back(
        detail::initial_values(tensor.name, tensor.dtype, evaluate(tensor.shape, {}), tensor.init, seed));
    views.push_back({tensor.name, detail::stored_type(tensor.dtype), host.shape(), host.bytes()});
  }
  write_safetensors(path, views);
}

}  // namespace jerboa
