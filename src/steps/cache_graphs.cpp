#include "steps/cache_graphs.h"

#include <algorithm>

#include <jerboa/ops/ops.h>

namespace jerboa::language {
namespace {

Tensor state_of(const CacheSpec& cache) { return state_input(cache.name, cache.shape, cache.dtype); }

// The shape of as many blocks, or slots, as are moved at once.
Shape moved_shape(const CacheSpec& cache) {
  Shape shape = cache.shape;
  shape[0] = moved_blocks;
  return shape;
}

Tensor blocks_of(const CacheSpec& cache, const Tensor& state, const Tensor& from) {
  const Tensor rows = embedding(reshape(state, {cache.shape[0], -1}), from);
  return reshape(rows, moved_shape(cache));
}

// Writes rows of a state that is not shaped like a cache; negative numbers are skipped.
void write_rows(const CacheSpec& cache, const Tensor& state, const Tensor& values, const Tensor& to) {
  const Tensor flat = reshape(values, {moved_blocks, -1});
  const Tensor rows = broadcast_to(unsqueeze(to, {1}), flat.shape());
  const Tensor all = reshape(state, {cache.shape[0], flat.dim(1)});
  update(state, reshape(scatter(all, rows, flat, 0), cache.shape));
}

// A block is written like the positions of one sequence, through a table of that block alone.
void write_blocks(const CacheSpec& cache, const Tensor& state, const Tensor& values, const Tensor& to) {
  if (cache.shape.size() != 4) return write_rows(cache, state, values, to);
  const Dim block = cache.shape[2];
  const Tensor positions = broadcast_to(arange(block), {moved_blocks, block});
  update(state, cache_append(state, values, positions, {.table = unsqueeze(to, {1})}));
}

Tensor block_numbers(const char* name) { return tensor_input(name, {moved_blocks}, DType::i32); }

}  // namespace

Graph copy_graph(const std::vector<CacheSpec>& caches) {
  return trace([&] {
    const SiteScope scope(CallSite{});
    const Tensor from = block_numbers("from"), to = block_numbers("to");
    for (const CacheSpec& cache : caches) {
      const Tensor state = state_of(cache);
      write_blocks(cache, state, blocks_of(cache, state, from), to);
    }
  });
}

Graph read_graph(const std::vector<CacheSpec>& caches) {
  return trace([&] {
    const SiteScope scope(CallSite{});
    const Tensor from = block_numbers("from");
    for (const CacheSpec& cache : caches) output(cache.name + blocks_suffix, blocks_of(cache, state_of(cache), from));
  });
}

Graph write_graph(const std::vector<CacheSpec>& caches) {
  return trace([&] {
    const SiteScope scope(CallSite{});
    const Tensor to = block_numbers("to");
    for (const CacheSpec& cache : caches) {
      const Tensor values = tensor_input(cache.name + blocks_suffix, moved_shape(cache), cache.dtype);
      write_blocks(cache, state_of(cache), values, to);
    }
  });
}

std::vector<std::span<const serving::BlockCopy>> independent_runs(std::span<const serving::BlockCopy> copies) {
  std::vector<std::span<const serving::BlockCopy>> runs;
  std::size_t begin = 0;
  const auto is_written = [&](serving::Block block, std::size_t before) {
    return std::any_of(copies.begin() + static_cast<std::ptrdiff_t>(begin),
                       copies.begin() + static_cast<std::ptrdiff_t>(before),
                       [&](const serving::BlockCopy& copy) { return copy.to == block; });
  };
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const bool fits = i - begin < moved_blocks && !is_written(copies[i].from, i) && !is_written(copies[i].to, i);
    if (fits) continue;
    runs.push_back(copies.subspan(begin, i - begin));
    begin = i;
  }
  if (begin < copies.size()) runs.push_back(copies.subspan(begin));
  return runs;
}

}  // namespace jerboa::language
