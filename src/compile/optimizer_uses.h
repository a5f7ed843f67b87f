#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <jerboa/ir/graph.h>

namespace jerboa::detail {

/// The optimizers of the entries over one storage, to detect two that count their steps in one state: each would take
/// the other's steps for its own in its bias correction and schedule.
class OptimizerUses {
 public:
  /// Throws UsageError if an optimizer of the graph shares its step counter with a different one added earlier, that is
  /// one for other parameters or with other settings. The same optimizer in several entries, for batches of several
  /// shapes, is fine.
  void add(const std::string& entry, const Graph& graph);

 private:
  struct Use {
    std::string entry;
    std::map<std::string, std::set<std::string>> states;  // by parameter that the entry updates
    std::map<std::string, std::string> rules;  // of each parameter whose update depends on the counter: a hash of how
  };
  static void check_same(const Use& use, const Use& earlier, const std::string& counter);

  std::map<std::string, std::vector<Use>> by_counter_;
};

}  // namespace jerboa::detail
