#pragma once

#include <optional>
#include <set>
#include <vector>

#include "wgsl/fold.h"

namespace jerboa::wgsl {

/// The same kernel with other numbers for its bindings.
KernelSpec renumbered(KernelSpec kernel, const std::vector<int>& numbers);

/// A part with the memories of another behind its own, and the numbers that those have in it.
struct JoinedPart {
  FoldedPart part;
  std::vector<int> numbers;
};
/// Each buffer is one memory, except where a part computes or finishes its elements itself, so that nothing is there.
/// The memories of `other` in `separate` are not those of `part` either.
JoinedPart join_memories(const FoldedPart& part, const FoldedPart& other, const std::set<int>& separate = {});

/// The parts of a program as kernels are folded into others: which of them read and write each buffer.
class PartUses {
 public:
  explicit PartUses(const Program& program);

  std::size_t count() const { return parts_.size(); }
  const FoldedPart& at(std::size_t part) const { return parts_[part]; }
  const KernelSpec& kernel_of(std::size_t part) const;
  bool is_gone(std::size_t part) const { return gone_[part]; }
  /// The parts that are left, in their order.
  std::vector<FoldedPart> take();

  /// Puts a part that computes more, or less, in the place of one.
  void replace(std::size_t part, FoldedPart with);
  /// Another part computes what this one did.
  void drop(std::size_t part);

  const std::set<int>& read_buffers(std::size_t part) const { return reads_[part]; }
  const std::set<int>& written_buffers(std::size_t part) const { return writes_[part]; }
  bool reads(std::size_t part, int buffer) const { return readers_[static_cast<std::size_t>(buffer)].contains(part); }

  /// Whether only kernels read a buffer, as a whole: neither does the user, nor is it part of another.
  bool is_internal(int buffer) const;
  /// The one buffer that a part writes, if it is internal; -1: none.
  int only_result(std::size_t part) const;
  /// The parts that read what a part writes to a buffer, up to the one that overwrites it, which may read it in place.
  std::vector<std::size_t> readers_of(std::size_t part, int result) const;
  /// The part that last wrote to a buffer before another part.
  std::optional<std::size_t> last_writer(int buffer, std::size_t before) const;
  /// The first part after another that reads a buffer.
  std::optional<std::size_t> next_reader(int buffer, std::size_t after) const;

  /// Whether two buffers are in memory that a device binds as one.
  bool share_memory(int a, int b) const;
  /// Whether what a part reads is still there when a later one runs, and that one writes to none of it.
  bool can_run_later(std::size_t part, std::size_t until) const;
  /// Whether what a part reads, apart from `result`, is there when an earlier one runs, and no part from that one on
  /// uses what it writes.
  bool can_run_earlier(std::size_t part, std::size_t from, int result) const;

 private:
  const Buffer& buffer_at(int number) const { return program_.buffers[static_cast<std::size_t>(number)]; }
  std::set<int> reads_of(const FoldedPart& part) const;
  std::set<int> writes_of(const FoldedPart& part) const;
  void add_uses(std::size_t part);
  void remove_uses(std::size_t part);

  const Program& program_;
  std::vector<FoldedPart> parts_;
  std::vector<bool> gone_;                                // by part
  std::vector<std::set<int>> reads_, writes_;             // by part: buffers
  std::vector<std::set<std::size_t>> readers_, writers_;  // by buffer: parts
  std::vector<bool> shared_;                              // by buffer: others are in it, or the user reads it
};

}  // namespace jerboa::wgsl
