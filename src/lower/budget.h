#pragma once

#include <map>
#include <set>
#include <vector>

#include <jerboa/lower/program.h>

#include "lower/views.h"

namespace jerboa::detail {

/// Counts the bindings of kernels while nodes are being grouped, so that none needs more than the target allows.
class Budget {
 public:
  Budget(const Graph& graph, const Target& target, const std::vector<Layout>& layouts);

  /// Removes nodes from `inlined` whose users would need too many bindings; the rest is final.
  void settle(std::vector<bool>& inlined);

  /// Starts over, with nothing placed.
  void clear();
  /// Opens the next group. The limit of a strict group holds wherever the unplaced nodes end up; for other groups it is
  /// assumed that those nodes join too, and that updates are written in place.
  void add_group(bool strict);
  /// allows_to_join: whether an unplaced node may join a group. place: lets it join, or start, the group.
  bool allows_to_join(NodeId joining, int group) const;
  void place(NodeId node, int group);
  /// allows_to_merge: whether a group may be merged into an earlier one. merge: does it. All nodes must be placed.
  bool allows_to_merge(int group, int into) const;
  void merge(int group, const std::vector<NodeId>& nodes, int into);

  /// The bindings that these distinct tensors need.
  int bindings(const std::vector<TensorId>& tensors) const;
  bool allows(int bindings) const { return bindings <= target_.max_bindings; }

 private:
  // The bindings of a group.
  struct Bound {
    bool strict = false;
    std::map<TensorId, int> reads;  // other groups' results and leaves, with the number of its nodes that read them
    std::set<TensorId> stored;      // results of its nodes that others need
  };
  // The users of a tensor by location; inlined nodes and views do not count.
  struct Users {
    int elsewhere = 0;           // in other groups than the one that computes it
    int unplaced = 0;            // not placed yet, and able to join a group
    int unplaced_unfusable = 0;  // not placed yet, and always in a separate kernel
  };

  bool is_limited() const;
  std::vector<TensorId> find_reads(const Node& node, const std::vector<bool>& inlined) const;
  bool is_fusable(NodeId id) const;
  int group_of_producer(TensorId id) const;
  bool is_stored(TensorId id, const Users& users, bool strict) const;
  void refresh_stored(TensorId id);
  TensorId binding_of(TensorId result, bool strict) const;

  const Graph& graph_;
  const Target& target_;
  const std::vector<Layout>& layouts_;
  std::vector<std::vector<TensorId>> reads_;  // by node: tensors in memory that it or inlined operands read
  std::vector<Users> all_users_;              // by tensor, before any is placed
  std::vector<Users> users_;                  // by tensor
  std::vector<int> group_of_;                 // by node, -1 before it is placed
  std::vector<Bound> groups_;
  std::vector<int> bindings_;        // by tensor: how many it needs
  std::vector<bool> kept_;           // by tensor: read by the user, or an update
  std::vector<TensorId> target_of_;  // by tensor: its update's target, or no_tensor
};

}  // namespace jerboa::detail
