#pragma once

#include <optional>
#include <set>
#include <vector>

#include "wgsl/fold.h"

namespace jerboa::wgsl {

/// The same kernel with other numbers for its bindings.
KernelSpec renumbered(KernelSpec kernel, const std::vector<int>& numbers);

/// A part with the memories of another after its own, and the numbers that those have in it.
struct JoinedPart {
  FoldedPart part;
  std::vector<int> numbers;
};
/// Each buffer is one memory, except where a part computes or finishes its elements itself, so that nothing is stored.
/// The memories of `other` in `separate` are not shared with `part` either.
JoinedPart join_memories(const FoldedPart& part, const FoldedPart& other, const std::set<int>& separate = {});

/// The parts of a program while kernels are folded into others: which of them read and write each buffer.
class PartUses {
 public:
  explicit PartUses(const Program& program);

  std::size_t count() const { return parts_.size(); }
  const FoldedPart& at(std::size_t part) const { return parts_[part]; }
  const KernelSpec& kernel_of(std::size_t part) const;
  bool is_gone(std::size_t part) const { return gone_[part]; }
  /// The parts that are left, in their order.
  std::vector<FoldedPart> take();

  /// Replaces a part by one that computes more, or less.
  void replace(std::size_t part, FoldedPart with);
  /// Removes a part whose work another part does now.
  void drop(std::size_t part);

  const std::set<int>& read_buffers(std::size_t part) const { return reads_[part]; }
  const std::set<int>& written_buffers(std::size_t part) const { return writes_[part]; }
  bool reads(std::size_t part, int buffer) const { return readers_[static_cast<std::size_t>(buffer)].contains(part); }

  /// Whether a buffer is read only by kernels, and as a whole: the user does not read it, and it is no part of another.
  bool is_internal(int buffer) const;
  /// The one buffer that a part writes, if it is internal; -1: none.
  int only_result(std::size_t part) const;
  /// The readers of what a part writes to a buffer, up to the part that overwrites it, which may read it in place.
  std::vector<std::size_t> readers_of(std::size_t part, int result) const;
  /// The last part before another that writes to a buffer.
  std::optional<std::size_t> last_writer(int buffer, std::size_t before) const;
  /// The first part after another that reads a buffer.
  std::optional<std::size_t> next_reader(int buffer, std::size_t after) const;

  /// Whether two buffers are in memory that a device binds as one.
  bool share_memory(int a, int b) const;
  /// Whether no part up to and including a later one overwrites what a part reads.
  bool can_run_later(std::size_t part, std::size_t until) const;
  /// Whether what a part reads, apart from `result`, is written before an earlier part, and no part from that one on
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
  std::vector<bool> shared_;                              // by buffer: nested, or read by the user
};

}  // namespace jerboa::wgsl
