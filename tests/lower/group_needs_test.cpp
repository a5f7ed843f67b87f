#include "lower/group_needs.h"

#include <gtest/gtest.h>
#include <random>

namespace jerboa::detail {
namespace {

// Reachability by exhaustive search.
bool reaches(const std::vector<Group>& groups, int from, int to) {
  std::vector<int> open{from};
  std::set<int> seen;
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    if (at == to) return true;
    if (!seen.insert(at).second) continue;
    for (const int need : groups[static_cast<std::size_t>(at)].needs) open.push_back(need);
  }
  return false;
}

bool can_need(const std::vector<Group>& groups, int group, const std::set<int>& more) {
  return std::none_of(more.begin(), more.end(),
                      [&](int need) { return need != group && reaches(groups, need, group); });
}

TEST(GroupNeeds, FindsEveryCycle) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::vector<Group> groups;
    GroupNeeds needs(groups);
    const auto any = [&] { return static_cast<int>(random() % groups.size()); };
    int refused = 0;
    for (int step = 0; step < 300; ++step) {
      if (groups.size() < 4 || random() % 4 == 0) {
        Group group;
        group.nodes = {step};
        if (!groups.empty()) group.needs = {any(), any()};
        std::erase_if(group.needs, [&](int need) { return groups[static_cast<std::size_t>(need)].nodes.empty(); });
        groups.push_back(std::move(group));
        needs.add_last();
        continue;
      }
      const int group = any();
      if (groups[static_cast<std::size_t>(group)].nodes.empty()) continue;
      std::set<int> more{any(), any(), any()};
      std::erase_if(more, [&](int need) { return groups[static_cast<std::size_t>(need)].nodes.empty(); });
      const bool fine = can_need(groups, group, more);
      ASSERT_EQ(needs.can_need(group, more), fine) << seed << " " << step;
      if (fine) needs.add(group, more);
      refused += fine ? 0 : 1;
      // A group may be merged into one that it needs, if nothing else that it needs comes in between.
      const std::set<int> needed = groups[static_cast<std::size_t>(group)].needs;
      if (needed.empty() || random() % 4 != 0) continue;
      const int into = *needed.rbegin();
      if (!can_need(groups, into, needed)) continue;
      needs.merge(group, into);
      ASSERT_TRUE(can_need(groups, into, groups[static_cast<std::size_t>(into)].needs)) << seed << " " << step;
    }
    EXPECT_GT(refused, 0);
    const std::vector<int> numbers = needs.drop_merged();
    EXPECT_EQ(numbers.size() - static_cast<std::size_t>(std::count(numbers.begin(), numbers.end(), -1)), groups.size());
    for (int group = 0; group < static_cast<int>(groups.size()); ++group)
      for (int need = 0; need < static_cast<int>(groups.size()); ++need)
        ASSERT_EQ(needs.can_need(group, {need}), can_need(groups, group, {need})) << seed;
  }
}

}  // namespace
}  // namespace jerboa::detail
