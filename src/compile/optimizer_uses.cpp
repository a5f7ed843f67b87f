#include "compile/optimizer_uses.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/compile/graphs.h>
#include <jerboa/transform/half_copies.h>
#include <jerboa/transform/optimizer.h>

namespace jerboa::detail {
namespace {

// If both update a parameter, they are the same optimizer if it has the same states in both, and different otherwise.
// If they share no parameter, they are different.
bool same_optimizer(const std::map<std::string, std::set<std::string>>& a,
                    const std::map<std::string, std::set<std::string>>& b) {
  bool common = false;
  for (const auto& [param, states] : a) {
    const auto other = b.find(param);
    if (other == b.end()) continue;
    if (other->second != states) return false;
    common = true;
  }
  return common;
}

}  // namespace

void OptimizerUses::add(const std::string& entry, const Graph& graph) {
  Use use{entry, {}};
  std::vector<std::string> counters;
  for (const Update& update : graph.updates) {
    const TensorInfo& target = graph.tensor(update.target);
    if (target.storage == Storage::param) use.states[target.name];
    if (target.storage == Storage::state && is_step_counter(target.name)) counters.push_back(target.name);
  }
  if (use.states.empty()) return;
  for (const Update& update : graph.updates) {
    const TensorInfo& target = graph.tensor(update.target);
    if (target.storage != Storage::state || target.name.starts_with(gradient_prefix) || half_copy_source(target.name))
      continue;
    if (const auto param = state_owner(target.name, [&](const std::string& name) { return use.states.contains(name); }))
      use.states[*param].insert(target.name);
  }
  for (const std::string& counter : counters)
    for (const Use& other : by_counter_[counter])
      if (!same_optimizer(use.states, other.states))
        throw UsageError(
            fmt::format("entry {}: its optimizer differs from that of entry {}, but both count their steps in the "
                        "state {}; give each its own name: Adam{{.name = \"generator\"}}",
                        entry, other.entry, counter));
  for (const std::string& counter : counters) by_counter_[counter].push_back(use);
}

}  // namespace jerboa::detail
