#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace jerboa::serving {

/// The number of a block of a paged key/value cache.
using Block = std::int32_t;
inline constexpr Block no_block = -1;  ///< in a table: a block that was given back, or never taken

struct PagePoolStatistics {
  std::int64_t allocations = 0;
  std::int64_t refusals = 0;  ///< allocations that found no free block
  int peak = 0;               ///< the most blocks in use at once
};

/// The blocks of a paged cache, each of `block_size` positions and counted by reference: tables and the prefix tree
/// share blocks, and a block is free once nobody holds it. Every call takes constant time. It only does the
/// bookkeeping; the cache itself belongs to the host.
class PagePool {
 public:
  /// Throws UsageError unless both are positive.
  PagePool(int blocks, int block_size);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// A block with one reference, or nothing if all are in use.
  std::optional<Block> allocate();
  /// Adds a reference.
  void share(Block block);
  /// Drops a reference.
  void release(Block block);
  int references(Block block) const;

  int blocks() const { return static_cast<int>(references_.size()); }
  int block_size() const { return block_size_; }
  int free_blocks() const { return static_cast<int>(free_.size()); }
  int used_blocks() const { return blocks() - free_blocks(); }
  /// The blocks that hold this many positions.
  int blocks_for(std::int64_t positions) const { return static_cast<int>((positions + block_size_ - 1) / block_size_); }
  const PagePoolStatistics& statistics() const { return statistics_; }

 private:
  int& held(Block block);

  int block_size_;
  std::vector<int> references_;
  std::vector<Block> free_;  // the next one to allocate is at the end
  PagePoolStatistics statistics_;
};

/// The blocks of layers that see only the latest positions, and therefore give back those before their window.
struct WindowedPool {
  /// Throws UsageError unless all are positive.
  WindowedPool(int window, int blocks, int block_size);

  /// The number of whole blocks before its end that a text needs to continue.
  int reach() const { return pool.blocks_for(window - 1); }
  /// The earliest position visible from position `known` or from the end of the last whole block before it.
  std::int64_t first_seen(std::int64_t known) const {
    const std::int64_t size = pool.block_size();
    return known / size * size - window + 1;
  }

  int window;  ///< how many of the latest positions a token sees, including itself
  PagePool pool;
};
using WindowedPools = std::vector<std::unique_ptr<WindowedPool>>;

}  // namespace jerboa::serving
