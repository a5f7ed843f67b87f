#include "lower/group_order.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "lower/index.h"

namespace jerboa::detail {
namespace {

// An arbitrary topological order.
std::vector<int> runnable_order(const std::vector<std::vector<int>>& users, std::vector<int> waiting) {
  std::vector<int> order;
  for (std::size_t i = 0; i < waiting.size(); ++i)
    if (waiting[i] == 0) order.push_back(static_cast<int>(i));
  for (std::size_t i = 0; i < order.size(); ++i)
    for (const int user : users[index(order[i])])
      if (--waiting[index(user)] == 0) order.push_back(user);
  return order;
}

}  // namespace

// Kahn's algorithm.
void sort_groups(Fusion& fusion) {
  const std::size_t count = fusion.groups.size();
  std::vector<std::vector<int>> users(count);
  std::vector<int> waiting(count, 0);
  for (std::size_t i = 0; i < count; ++i)
    for (const int need : fusion.groups[i].needs) {
      users[index(need)].push_back(static_cast<int>(i));
      ++waiting[i];
    }
  // A group is as urgent as any group that waits for it, so users are visited before the groups that they need.
  std::vector<NodeId> urgency(count);
  for (std::size_t i = 0; i < count; ++i) urgency[i] = fusion.groups[i].nodes.front();
  const std::vector<int> order = runnable_order(users, waiting);
  for (auto group = order.rbegin(); group != order.rend(); ++group)
    for (const int user : users[index(*group)])
      urgency[index(*group)] = std::min(urgency[index(*group)], urgency[index(user)]);
  // The lowest index breaks ties, because standard libraries order equal elements differently.
  const auto later = [&](int a, int b) { return std::pair(urgency[index(a)], a) > std::pair(urgency[index(b)], b); };
  std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
  for (std::size_t i = 0; i < count; ++i)
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  std::vector<Group> sorted;
  std::vector<int> place_of(count, -1);
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    place_of[index(next)] = static_cast<int>(sorted.size());
    sorted.push_back(std::move(fusion.groups[index(next)]));
    for (const int user : users[index(next)])
      if (--waiting[index(user)] == 0) ready.push(user);
  }
  for (Group& group : sorted) {
    std::set<int> needs;
    for (const int need : group.needs) needs.insert(place_of[index(need)]);
    group.needs = std::move(needs);
  }
  for (int& group : fusion.group_of)
    if (group >= 0) group = place_of[index(group)];
  fusion.groups = std::move(sorted);
}

}  // namespace jerboa::detail
