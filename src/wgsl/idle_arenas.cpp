#include "wgsl/idle_arenas.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/integers.h"

namespace jerboa::wgsl {

IdleArenas::IdleArenas(const Program& program, const std::vector<FoldedPart>& parts, std::int64_t alignment)
    : alignment_(alignment), bytes_(program.arenas), tenants_(program.arenas.size()) {
  constexpr std::size_t never = std::numeric_limits<std::size_t>::max();
  std::vector<Tenant> tenants;
  for (const Buffer& buffer : program.buffers)
    tenants.push_back({buffer.first, buffer.last, never, 0, buffer.offset + buffer.bytes});
  for (std::size_t i = 0; i < parts.size(); ++i) {
    dispatches_.push_back(parts[i].dispatch);
    std::set<int>& bound = bound_.emplace_back();
    for (const int buffer : parts[i].buffers) {
      Tenant& tenant = tenants[static_cast<std::size_t>(root_of(program, buffer))];
      tenant.first_part = std::min(tenant.first_part, i);
      tenant.last_part = i;
      const Buffer& whole = program.buffers[static_cast<std::size_t>(buffer)];
      if (whole.where == Buffer::Where::arena) bound.insert(whole.arena);
    }
  }
  for (std::size_t i = 0; i < tenants.size(); ++i)
    if (const Buffer& buffer = program.buffers[i]; buffer.where == Buffer::Where::arena && buffer.within < 0)
      tenants_[static_cast<std::size_t>(buffer.arena)].push_back(tenants[i]);
}

std::optional<IdleArenas::Place> IdleArenas::find(std::size_t part, std::int64_t bytes,
                                                  const std::set<int>& except) const {
  const int dispatch = dispatches_[part];
  const auto is_there = [&](const Tenant& tenant) {
    return (tenant.first_dispatch <= dispatch && dispatch <= tenant.last_dispatch) ||
           (tenant.first_part <= part && part <= tenant.last_part);
  };
  // Prefers an arena with nothing alive: steps that use the same arena wait for each other.
  std::optional<Place> best;
  std::pair<bool, std::int64_t> least{true, std::numeric_limits<std::int64_t>::max()};  // whether shared, and the room
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    const int arena = static_cast<int>(i);
    if (bytes_[i] < bytes || except.contains(arena) || bound_[part].contains(arena)) continue;
    std::int64_t offset = 0;
    for (const Tenant& tenant : tenants_[i])
      if (is_there(tenant)) offset = std::max(offset, detail::round_up(tenant.end, alignment_));
    const std::int64_t room = bytes_[i] - offset;
    if (room < bytes || std::pair(offset > 0, room) >= least) continue;
    least = {offset > 0, room};
    best = {arena, offset};
  }
  return best;
}

}  // namespace jerboa::wgsl
