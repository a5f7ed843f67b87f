#pragma once

#include <set>
#include <vector>

#include "lower/fuse.h"

namespace jerboa::detail {

/// Keeps the needs of groups free of cycles while the groups are being made. It holds them in an order in which they
/// could run, so that a question looks only at the groups between the two that it is about (the algorithm of Pearce
/// and Kelly).
class GroupNeeds {
 public:
  explicit GroupNeeds(std::vector<Group>& groups) : groups_(groups) {}

  /// Starts again, with no groups.
  void clear();
  /// Takes up the last group of the list, whose needs are before it there.
  void add_last();
  /// Whether a group may also need these: none of them may need it.
  bool can_need(int group, const std::set<int>& more) const;
  /// Adds needs that can_need allows; the group itself among them is left out.
  void add(int group, const std::set<int>& more);
  /// Moves the nodes and the needs of a group to one that it needs; users of the one then need the other.
  void merge(int group, int into);
  /// Removes the groups that were merged, and gives the new numbers of the others.
  std::vector<int> drop_merged();

 private:
  void put_before(int need, int group);
  template <class Next>
  std::vector<int> reached(int from, const Next& next) const;

  std::vector<Group>& groups_;
  std::vector<std::set<int>> users_;  // by group: those that need it
  std::vector<int> place_;            // by group: in the order in which they could run
  mutable std::vector<int> seen_;     // by group: the last search that came by
  mutable int search_ = 0;
};

}  // namespace jerboa::detail
