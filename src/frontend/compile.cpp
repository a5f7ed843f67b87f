#include <fmt/format.h>

#include <jerboa/frontend/compile.h>

namespace jerboa {

InputSpecs specs_of(const TensorMap& batch) {
  InputSpecs specs;
  for (const auto& [name, tensor] : batch) specs.push_back({name, to_shape(tensor.shape()), tensor.dtype()});
  return specs;
}

Shape Module::output_shape(const std::string& output) const {
  std::string known;
  for (const NamedTensor& named : ir().outputs) {
    if (named.name == output) return ir().shape(named.tensor);
    known += (known.empty() ? "" : ", ") + named.name;
  }
  throw UsageError(fmt::format("the module has no output {}; available: {}", output, known));
}

Module compile(const Graph& graph, const CompileOptions& options) {
  return {create_session({{"run", graph}}, options), "run"};
}

Module compile(const Graph& graph, const Session& shared) {
  Session session = shared.sibling();
  session.add_entry("run", graph);
  return {std::move(session), "run"};
}

Session create_session(const std::vector<std::pair<std::string, Graph>>& entries, const CompileOptions& options) {
  Session session(options.device ? *options.device : Device::best(), {.seed = options.seed});
  for (const auto& [name, graph] : entries) session.add_entry(name, graph);
  return session;
}

}  // namespace jerboa
