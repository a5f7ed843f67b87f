#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <jerboa/lower/program.h>

namespace jerboa::wgsl {

/// Storage that the same operand of a shader refers to in different layers, which therefore must be in one buffer: a
/// shader cannot choose a binding at run time.
class StoragePools {
 public:
  explicit StoragePools(Program& program);

  void unite(int a, int b) { parent_[static_cast<std::size_t>(find(a))] = find(b); }

  /// Puts storage that is only read into as few buffers as can hold it, and storage that is written into one per
  /// operand. The pools become buffers of the program.
  void make(const std::set<int>& used, const std::set<int>& written, const Target& target);

  /// The buffer that is bound for this one, and this one's offset in it. After make().
  std::pair<int, std::int64_t> place(int buffer) const;
  /// Whether anything in a bound buffer is written.
  bool is_written(int bound) const { return written_.contains(bound); }

 private:
  struct Pool {
    std::vector<int> members;
    std::int64_t bytes = 0;
    bool is_shared = false;
  };
  int find(int buffer);
  std::int64_t placed_bytes(int buffer, const Target& target) const;
  void add(const Pool& pool, const Target& target);

  Program& program_;
  std::vector<int> parent_;
  std::set<int> written_;  // bound buffers
};

}  // namespace jerboa::wgsl
