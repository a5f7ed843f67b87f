#include "lower/group_needs.h"

#include <algorithm>

#include "lower/index.h"

namespace jerboa::detail {
void GroupNeeds::clear() {
  users_.clear();
  place_.clear();
  seen_.clear();
  search_ = 0;
}

void GroupNeeds::add_last() {
  const int group = static_cast<int>(groups_.size()) - 1;
  users_.emplace_back();
  place_.push_back(group);
  seen_.push_back(0);
  for (const int need : groups_.back().needs) users_[index(need)].insert(group);
}

// All groups reachable from one by `next`, including itself. `next` calls its argument for each neighbour.
template <class Next>
std::vector<int> GroupNeeds::reached(int from, const Next& next) const {
  ++search_;
  seen_[index(from)] = search_;
  std::vector<int> found{from};
  for (std::size_t i = 0; i < found.size(); ++i)
    next(found[i], [&](int group) {
      if (seen_[index(group)] == search_) return;
      seen_[index(group)] = search_;
      found.push_back(group);
    });
  return found;
}

// Searches from both ends at once, so that it ends as soon as either side is exhausted.
bool GroupNeeds::can_need(int group, const std::set<int>& more) const {
  const int above = ++search_, below = ++search_;
  std::vector<int> down, up{group};
  int latest = -1;
  bool met = false;
  // Groups before this one cannot need it, and none of `more` needs a group after all of them.
  const auto go_down = [&](int other) {
    if (place_[index(other)] < place_[index(group)] || seen_[index(other)] == above) return;
    met |= seen_[index(other)] == below;
    seen_[index(other)] = above;
    down.push_back(other);
  };
  const auto go_up = [&](int other) {
    if (place_[index(other)] > latest || seen_[index(other)] == below) return;
    met |= seen_[index(other)] == above;
    seen_[index(other)] = below;
    up.push_back(other);
  };
  seen_[index(group)] = below;
  for (const int need : more)
    if (need != group) {
      go_down(need);
      latest = std::max(latest, place_[index(need)]);
    }
  while (!met && !down.empty() && !up.empty()) {
    const int from = down.back(), to = up.back();
    down.pop_back();
    up.pop_back();
    for (const int need : groups_[index(from)].needs) go_down(need);
    for (const int user : users_[index(to)]) go_up(user);
  }
  return !met;
}

void GroupNeeds::add(int group, const std::set<int>& more) {
  for (const int need : more) {
    if (need == group || !groups_[index(group)].needs.insert(need).second) continue;
    users_[index(need)].insert(group);
    put_before(need, group);
  }
}

void GroupNeeds::put_before(int need, int group) {
  const int from = place_[index(group)], to = place_[index(need)];
  if (to < from) return;
  std::vector<int> before = reached(need, [&](int at, const auto& visit) {
    for (const int other : groups_[index(at)].needs)
      if (place_[index(other)] > from) visit(other);
  });
  std::vector<int> after = reached(group, [&](int at, const auto& visit) {
    for (const int other : users_[index(at)])
      if (place_[index(other)] < to) visit(other);
  });
  const auto earlier = [&](int a, int b) { return place_[index(a)] < place_[index(b)]; };
  std::sort(before.begin(), before.end(), earlier);
  std::sort(after.begin(), after.end(), earlier);
  before.insert(before.end(), after.begin(), after.end());
  std::vector<int> places;
  for (const int moved : before) places.push_back(place_[index(moved)]);
  std::sort(places.begin(), places.end());
  for (std::size_t i = 0; i < before.size(); ++i) place_[index(before[i])] = places[i];
}

void GroupNeeds::merge(int group, int into) {
  Group& from = groups_[index(group)];
  Group& from_group = groups_[index(into)];
  from_group.nodes.insert(from_group.nodes.end(), from.nodes.begin(), from.nodes.end());
  from.nodes.clear();
  for (const int need : from.needs) users_[index(need)].erase(group);
  for (const int user : users_[index(group)]) {
    groups_[index(user)].needs.erase(group);
    groups_[index(user)].needs.insert(into);
    users_[index(into)].insert(user);
  }
  users_[index(group)].clear();
  add(into, from.needs);
  from.needs.clear();
}

std::vector<int> GroupNeeds::drop_merged() {
  std::vector<int> numbers(groups_.size(), -1);
  int count = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (!groups_[i].nodes.empty()) numbers[i] = count++;
  const auto renumbered = [&](const std::set<int>& old) {
    std::set<int> list;
    for (const int group : old) list.insert(numbers[index(group)]);
    return list;
  };
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    if (numbers[i] < 0) continue;
    const std::size_t to = index(numbers[i]);
    std::set<int> needs = renumbered(groups_[i].needs);
    if (to != i) groups_[to] = std::move(groups_[i]);
    groups_[to].needs = std::move(needs);
    users_[to] = renumbered(users_[i]);
    place_[to] = place_[i];
  }
  groups_.resize(index(count));
  users_.resize(index(count));
  place_.resize(index(count));
  seen_.assign(index(count), 0);
  search_ = 0;
  return numbers;
}

}  // namespace jerboa::detail
