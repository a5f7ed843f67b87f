#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/page_pool.h>

namespace jerboa::serving {

PagePool::PagePool(int blocks, int block_size) : block_size_(block_size) {
  if (blocks < 1 || block_size < 1)
    throw UsageError(
        fmt::format("a paged cache needs at least one block of one position, not {} of {}", blocks, block_size));
  references_.resize(static_cast<std::size_t>(blocks));
  free_.reserve(references_.size());
  for (Block block = blocks; block-- > 0;) free_.push_back(block);
}

WindowedPool::WindowedPool(int window, int blocks, int block_size) : window(window), pool(blocks, block_size) {
  if (window < 1) throw UsageError(fmt::format("a window must see at least one position, not {}", window));
}

std::optional<Block> PagePool::allocate() {
  if (free_.empty()) {
    ++statistics_.refusals;
    return std::nullopt;
  }
  const Block block = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  ++statistics_.allocations;
  statistics_.peak = std::max(statistics_.peak, used_blocks());
  return block;
}

int& PagePool::held(Block block) {
  if (block < 0 || block >= blocks() || references_[static_cast<std::size_t>(block)] == 0)
    throw UsageError(fmt::format("block {} of a paged cache with {} blocks is not in use", block, blocks()));
  return references_[static_cast<std::size_t>(block)];
}

void PagePool::share(Block block) { ++held(block); }

void PagePool::release(Block block) {
  if (--held(block) == 0) free_.push_back(block);
}

int PagePool::references(Block block) const {
  return block < 0 || block >= blocks() ? 0 : references_[static_cast<std::size_t>(block)];
}

}  // namespace jerboa::serving
