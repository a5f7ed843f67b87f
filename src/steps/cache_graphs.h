#pragma once

#include <span>
#include <string>
#include <vector>

#include <jerboa/models/family.h>
#include <jerboa/serving/page_table.h>

// Graphs that move blocks of a paged cache, or slots of recurrent states: between each other, to the host and back.
namespace jerboa::language {

using models::CacheSpec;

/// How many blocks one run of these graphs moves. Fewer are padded: reads with block 0, writes with -1.
inline constexpr int moved_blocks = 8;

/// The suffix of a cache's name in the names of those outputs and inputs.
inline constexpr const char* blocks_suffix = ".blocks";

/// Copies the blocks "from" i32[moved_blocks] to the blocks "to" i32[moved_blocks], in every layer. All are read before
/// any is written.
Graph copy_graph(const std::vector<CacheSpec>& caches);
/// Reads the blocks "from" of every cache, as outputs NAME.blocks, the cache's shape with moved_blocks blocks.
Graph read_graph(const std::vector<CacheSpec>& caches);
/// Writes such tensors, inputs NAME.blocks, to the blocks "to".
Graph write_graph(const std::vector<CacheSpec>& caches);

/// Splits copies into runs, in order, each of which may read everything before it writes: at most moved_blocks per run,
/// none of which reads or writes what an earlier one of the same run has written.
std::vector<std::span<const serving::BlockCopy>> independent_runs(std::span<const serving::BlockCopy> copies);

}  // namespace jerboa::language
