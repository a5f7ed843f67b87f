#include "lower/group_order.h"

#include <queue>

namespace jerboa::detail {
namespace {

std::size_t index(int number) { return static_cast<std::size_t>(number); }

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
  // What an earlier group waits for is as urgent as that group.
  std::vector<NodeId> urgency(count);
  for (std::size_t i = 0; i < count; ++i) urgency[i] = fusion.groups[i].nodes.front();
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = count; i-- > 0;)
      for (const int user : users[i])
        if (urgency[index(user)] < urgency[i]) {
          urgency[i] = urgency[index(user)];
          changed = true;
        }
  }
  const auto later = [&](int a, int b) { return urgency[index(a)] > urgency[index(b)]; };
  std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
  for (std::size_t i = 0; i < count; ++i)
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  std::vector<Group> sorted;
  std::vector<int> place_of(count, -1);
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    place_of[index(next)] = static_cast<int>(sorted.size());
    sorted.push_back(fusion.groups[index(next)]);
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
