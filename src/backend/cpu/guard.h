#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::cpu {

/// Checks a run, for tests: a dispatch may change only the elements of the buffers that it writes, and must write all
/// of those that are still uninitialised. Memory of dead activations is poisoned, so that reading it shows up in the
/// results.
class Guard {
 public:
  /// Memory that a run may access, with the padding after it.
  struct Region {
    std::string name;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  /// `memory` holds the address of each of the program's buffers. `scratch` is memory that holds only activations.
  Guard(const Program& program, SymbolValues symbols, std::vector<std::byte*> memory, std::vector<Region> persistent,
        const std::vector<Region>& scratch);

  void before(std::size_t dispatch);
  /// Throws GraphError that names the dispatch, and what it wrote wrongly or failed to write.
  void after(std::size_t dispatch);

 private:
  struct Range {
    std::byte* begin = nullptr;
    std::byte* end = nullptr;
  };

  Range range_of(int buffer) const;
  void remember(const Range& range);
  void poison(const Range& range);
  std::vector<int> written_by(std::size_t dispatch) const;
  bool begins_life(int buffer, std::size_t dispatch) const;
  std::string owner_of(const Region& region, const std::byte* place, std::size_t dispatch) const;
  void expect_unchanged(std::size_t region, std::vector<Range> ranges, std::size_t dispatch) const;
  void expect_whole(int buffer, std::size_t dispatch) const;
  std::string describe(std::size_t dispatch) const;

  const Program& program_;
  SymbolValues symbols_;
  std::vector<std::byte*> memory_;
  std::vector<Region> regions_;
  std::vector<std::vector<std::byte>> known_;  // the expected contents of each region
};

}  // namespace jerboa::cpu
