#pragma once

#include <optional>
#include <set>
#include <vector>

#include <jerboa/lower/program.h>

#include "wgsl/fold.h"

namespace jerboa::wgsl {

/// Finds room for a part's workspace in the arenas of activations while the part runs: in arenas that it does not bind
/// itself, after the tensors that others still need.
class IdleArenas {
 public:
  /// `alignment`: of places.
  IdleArenas(const Program& program, const std::vector<FoldedPart>& parts, std::int64_t alignment);

  struct Place {
    int arena = -1;
    std::int64_t offset = 0;
  };
  /// A place in an arena other than these, with little more room than needed; none if there is none.
  std::optional<Place> find(std::size_t part, std::int64_t bytes, const std::set<int>& except) const;

 private:
  // The time for which an arena holds a tensor: in dispatches, as planned, and in parts, which may use it longer than
  // planned if they compute what other kernels did.
  struct Tenant {
    int first_dispatch = 0, last_dispatch = 0;
    std::size_t first_part = 0, last_part = 0;
    std::int64_t end = 0;  // in the arena, bytes
  };
  std::int64_t alignment_;
  std::vector<std::int64_t> bytes_;           // by arena
  std::vector<std::vector<Tenant>> tenants_;  // by arena
  std::vector<std::set<int>> bound_;          // by part: arenas
  std::vector<int> dispatches_;               // by part
};

}  // namespace jerboa::wgsl
