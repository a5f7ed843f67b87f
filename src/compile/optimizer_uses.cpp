#include "compile/optimizer_uses.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>

#include <jerboa/base/error.h>
#include <jerboa/compile/graphs.h>
#include <jerboa/transform/half_copies.h>
#include <jerboa/transform/optimizer.h>

namespace jerboa::detail {
namespace {

// If both update a parameter, they are the same optimizer if the parameter has the same states in both, and different
// otherwise. If they share no parameter, they are different.
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

// Decay does not depend on the number of steps, so entries may differ in it.
std::string without_decay(Attrs attrs) {
  if (auto* adam = std::get_if<AdamAttrs>(&attrs)) adam->weight_decay = 0;
  if (auto* sgd = std::get_if<SgdAttrs>(&attrs)) sgd->weight_decay = 0;
  return attrs_to_json(attrs);
}

// How every tensor depends on a step counter: a hash of the ops and numbers that compute it from the counter, or 0 if
// it does not depend on it. Everything else is left out: entries apply one optimizer to gradients that they compute
// differently.
class Dependence {
 public:
  Dependence(const Graph& graph, TensorId counter) : graph_(graph), hashes_(graph.tensors.size()) {
    hashes_[static_cast<std::size_t>(counter)] = 1;
    for (const Node& node : graph.nodes) {
      const auto depends = [&](TensorId input) { return input != no_tensor && of(input) != 0; };
      if (std::any_of(node.inputs.begin(), node.inputs.end(), depends)) add(node);
    }
  }

  std::size_t of(TensorId id) const { return hashes_[static_cast<std::size_t>(id)]; }

 private:
  void add(const Node& node) {
    // An update that mixed precision skips where a gradient overflows is the same update.
    const bool is_skipped = node.op == Op::where && of(node.inputs[0]) == 0 && of(node.inputs[1]) != 0;
    std::string text = fmt::format("{} {}", name(node.op), without_decay(node.attrs));
    for (const TensorId input : node.inputs) text += fmt::format(" {}", described(input));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      hashes_[static_cast<std::size_t>(node.outputs[i])] =
          is_skipped ? of(node.inputs[1]) : std::max<std::size_t>(std::hash<std::string>()(text) + i, 1);
  }

  std::string described(TensorId id) const {
    if (id == no_tensor) return "-";
    if (of(id) != 0) return std::to_string(of(id));
    const Node& producer = graph_.producer(id);
    return producer.op == Op::const_scalar ? attrs_to_json(producer.attrs) : "?";
  }

  const Graph& graph_;
  std::vector<std::size_t> hashes_;
};

std::map<std::string, std::string> rules_of(const Graph& graph, TensorId counter) {
  const Dependence dependence(graph, counter);
  std::map<std::string, std::string> rules;
  for (const Update& update : graph.updates)
    if (const TensorInfo& target = graph.tensor(update.target);
        target.storage == Storage::param && dependence.of(update.value) != 0)
      rules[target.name] = std::to_string(dependence.of(update.value));
  return rules;
}

}  // namespace

void OptimizerUses::check_same(const Use& use, const Use& earlier, const std::string& counter) {
  const auto fail = [&](const std::string& difference) {
    throw UsageError(
        fmt::format("entry {}: its optimizer differs from that of entry {}{}, but both count their steps in the state "
                    "{}; give each its own name: Adam{{.name = \"generator\"}}",
                    use.entry, earlier.entry, difference, counter));
  };
  if (!same_optimizer(use.states, earlier.states)) fail("");
  for (const auto* one : {&use, &earlier}) {
    const Use& other = one == &use ? earlier : use;
    for (const auto& [param, rule] : one->rules) {
      const auto known = other.rules.find(param);
      if (known == other.rules.end()) fail(fmt::format(": {} is updated by entry {} alone", param, one->entry));
      if (known->second != rule) fail(fmt::format(": they update {} with different settings", param));
    }
  }
}

void OptimizerUses::add(const std::string& entry, const Graph& graph) {
  Use use{entry, {}, {}};
  std::vector<TensorId> counters;
  for (const Update& update : graph.updates) {
    const TensorInfo& target = graph.tensor(update.target);
    if (target.storage == Storage::param) use.states[target.name];
    if (target.storage == Storage::state && is_step_counter(target.name)) counters.push_back(update.target);
  }
  if (use.states.empty()) return;
  for (const Update& update : graph.updates) {
    const TensorInfo& target = graph.tensor(update.target);
    if (target.storage != Storage::state || target.name.starts_with(gradient_prefix) || half_copy_source(target.name))
      continue;
    if (const auto param = state_owner(target.name, [&](const std::string& name) { return use.states.contains(name); }))
      use.states[*param].insert(target.name);
  }
  for (const TensorId counter : counters) {
    const std::string& name = graph.tensor(counter).name;
    use.rules = rules_of(graph, counter);
    for (const Use& earlier : by_counter_[name]) check_same(use, earlier, name);
    by_counter_[name].push_back(use);
  }
}

}  // namespace jerboa::detail
