#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <jerboa/serving/page_pool.h>
#include <jerboa/serving/state_slots.h>

namespace jerboa::serving {

/// A pending copy of the content of block `from` to block `to`, in every layer.
struct BlockCopy {
  Block from = 0, to = 0;

  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// The blocks of a table from block `first` on.
struct SavedWindow {
  std::int64_t first = 0;
  std::vector<Block> blocks;

  friend bool operator==(const SavedWindow&, const SavedWindow&) = default;
};

/// The information needed to write a table's blocks to a file.
struct SavedTable {
  std::int64_t length = 0;
  int block_size = 0;
  std::vector<Block> blocks;
  std::vector<SavedWindow> windowed = {};  ///< for layers with windows: the blocks still visible from the end
  std::int32_t state = no_slot;            ///< the slot with the states of recurrent layers at its end, if there is one

  friend bool operator==(const SavedTable&, const SavedTable&) = default;
};

/// The blocks that hold a sequence's positions: position p is in blocks()[p / block_size]. The table holds a reference
/// to each of them until it is given back or the table is truncated, moved from or destroyed; the pool must outlive it.
class PageTable {
 public:
  explicit PageTable(PagePool& pool) : pool_(&pool) {}
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;
  ~PageTable();

  /// Makes room to write `positions` more. A last block that is partly filled and shared is replaced by a private copy:
  /// `copies` then gains the copy that must be made before the write, in list order. Returns false, and changes
  /// nothing, if the pool has too few blocks.
  bool append(std::int64_t positions, std::vector<BlockCopy>& copies);
  /// The blocks that append would take from the pool.
  int blocks_to_append(std::int64_t positions) const;
  /// Appends a whole block that someone else filled. The length must be a multiple of the block size.
  void append_shared(Block block);
  /// Lets an empty table begin with this many blocks that nobody will read.
  void skip(std::int64_t blocks);
  /// Forgets the positions from `length` on.
  void truncate(std::int64_t length);
  /// Gives back the blocks whose positions are all before this one, because nobody will read them again. Returns their
  /// number.
  int release_before(std::int64_t position);
  /// The first position that the table still holds.
  std::int64_t first() const { return static_cast<std::int64_t>(released_) * pool_->block_size(); }
  /// The number of blocks that the table still holds.
  int held() const { return static_cast<int>(blocks_.size() - released_); }
  /// A table of the same positions that shares every block.
  PageTable fork() const;
  /// Uses another block of the same content for the positions from index * block_size on.
  void replace(std::size_t index, Block block);

  SavedTable save() const { return {.length = length_, .block_size = pool_->block_size(), .blocks = blocks_}; }

  std::int64_t length() const { return length_; }
  const std::vector<Block>& blocks() const { return blocks_; }

 private:
  bool must_copy_last() const;

  PagePool* pool_;
  std::vector<Block> blocks_;
  std::size_t released_ = 0;  // how many leading blocks were given back
  std::int64_t length_ = 0;
};

}  // namespace jerboa::serving
