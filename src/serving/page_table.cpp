#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/serving/page_table.h>

namespace jerboa::serving {

PageTable::PageTable(PageTable&& other) noexcept
    : pool_(other.pool_),
      blocks_(std::exchange(other.blocks_, {})),
      released_(std::exchange(other.released_, 0)),
      length_(std::exchange(other.length_, 0)) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  if (this == &other) return *this;
  truncate(0);
  pool_ = other.pool_;
  blocks_ = std::exchange(other.blocks_, {});
  released_ = std::exchange(other.released_, 0);
  length_ = std::exchange(other.length_, 0);
  return *this;
}

PageTable::~PageTable() { truncate(0); }

bool PageTable::must_copy_last() const {
  return length_ % pool_->block_size() != 0 && pool_->references(blocks_.back()) > 1;
}

int PageTable::blocks_to_append(std::int64_t positions) const {
  if (positions == 0) return 0;
  return pool_->blocks_for(length_ + positions) - static_cast<int>(blocks_.size()) + (must_copy_last() ? 1 : 0);
}

bool PageTable::append(std::int64_t positions, std::vector<BlockCopy>& copies) {
  if (positions == 0) return true;
  if (blocks_to_append(positions) > pool_->free_blocks()) return false;
  if (must_copy_last()) {
    const Block copy = *pool_->allocate();
    copies.push_back({blocks_.back(), copy});
    pool_->release(std::exchange(blocks_.back(), copy));
  }
  length_ += positions;
  while (std::ssize(blocks_) < pool_->blocks_for(length_)) blocks_.push_back(*pool_->allocate());
  return true;
}

void PageTable::append_shared(Block block) {
  if (length_ % pool_->block_size() != 0)
    throw UsageError(
        fmt::format("a whole block can only be appended to whole blocks, not to {} positions in blocks of {}", length_,
                    pool_->block_size()));
  pool_->share(block);
  blocks_.push_back(block);
  length_ += pool_->block_size();
}

void PageTable::skip(std::int64_t blocks) {
  if (length_ > 0) throw UsageError("only an empty table can begin with skipped blocks");
  released_ = static_cast<std::size_t>(blocks);
  blocks_.assign(released_, no_block);
  length_ = blocks * pool_->block_size();
}

void PageTable::truncate(std::int64_t length) {
  if (length >= length_) return;
  length_ = length;
  for (; std::ssize(blocks_) > pool_->blocks_for(length_); blocks_.pop_back())
    if (blocks_.back() != no_block) pool_->release(blocks_.back());
  released_ = std::min(released_, blocks_.size());
}

int PageTable::release_before(std::int64_t position) {
  const auto end = static_cast<std::size_t>(std::clamp<std::int64_t>(position, 0, length_) / pool_->block_size());
  const std::size_t first = released_;
  for (; released_ < end; ++released_) pool_->release(std::exchange(blocks_[released_], no_block));
  return static_cast<int>(released_ - first);
}

PageTable PageTable::fork() const {
  PageTable out(*pool_);
  for (const Block block : blocks_)
    if (block != no_block) pool_->share(block);
  out.blocks_ = blocks_;
  out.released_ = released_;
  out.length_ = length_;
  return out;
}

void PageTable::replace(std::size_t index, Block block) {
  pool_->share(block);
  pool_->release(std::exchange(blocks_.at(index), block));
}

}  // namespace jerboa::serving
