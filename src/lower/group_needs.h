#pragma once

#include <set>
#include <vector>

#include "lower/fuse.h"

namespace jerboa::detail {

/// Keeps the dependences between groups acyclic while the groups are being built. It maintains a topological order, so
/// that a query looks only at the groups between the two in question (the algorithm of Pearce and Kelly).
class GroupNeeds {
 public:
  explicit GroupNeeds(std::vector<Group>& groups) : groups_(groups) {}

  /// Starts over, with no groups.
  void clear();
  /// Adds the last group of the list, whose needs precede it there.
  void add_last();
  /// Whether a group may also depend on these: none of them may depend on it.
  bool can_need(int group, const std::set<int>& more) const;
  /// Adds needs that can_need allows; the group itself among them is left out.
  void add(int group, const std::set<int>& more);
  /// Merges the nodes and needs of a group into one that it needs; its users then need that one.
  void merge(int group, int into);
  /// Removes the merged groups, and returns the new numbers of the others.
  std::vector<int> drop_merged();

 private:
  void put_before(int need, int group);
  template <class Next>
  std::vector<int> reached(int from, const Next& next) const;

  std::vector<Group>& groups_;
  std::vector<std::set<int>> users_;  // by group: those that need it
  std::vector<int> place_;            // by group: position in the topological order
  mutable std::vector<int> seen_;     // by group: the last search that visited it
  mutable int search_ = 0;
};

}  // namespace jerboa::detail
