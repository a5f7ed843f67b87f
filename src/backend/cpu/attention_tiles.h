#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/cpu/attention.h"

// How attention is split into tiles, and which parts of a tile are visible at all.
namespace jerboa::cpu {

constexpr std::int64_t row_tile = 64;   // queries
constexpr std::int64_t key_tile = 64;   // keys
constexpr std::int64_t row_strip = 16;  // rows per strip of a tile that is only partly visible

inline std::int64_t group_of(const AttentionInputs& a) { return a.heads / a.key_heads; }
inline float scale_of(const AttentionInputs& a) {
  return a.scale != 0 ? a.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(a.size)));
}

/// Bounds over some rows of the positions that each sees: [low, high).
struct VisibleRange {
  std::int32_t least_low, most_low, least_high, most_high;
};

/// Up to row_tile queries of one batch entry that share a key head.
struct QueryRows {
  std::int64_t batch = 0, count = 0;
  std::array<std::int64_t, row_tile> head, time;
  std::array<std::int32_t, row_tile> low, high;
  std::array<VisibleRange, row_tile / row_strip> strips;
  VisibleRange all;

  QueryRows(const AttentionInputs& a, std::int64_t batch_index, std::int64_t first_head, std::int64_t heads,
            std::int64_t first_time, std::int64_t times);
};

/// The tiles of queries of each (batch, key head): a part of one head's queries, or all queries of several heads.
struct RowTiling {
  std::int64_t heads_per_tile = 1, tiles_per_head = 1, count = 0;

  explicit RowTiling(const AttentionInputs& a);
  QueryRows rows(const AttentionInputs& a, std::int64_t batch, std::int64_t key_head, std::int64_t tile) const;
};

/// A tile of keys and the positions they hold; -1 for empty slots.
struct KeyTile {
  std::int64_t batch, first, count;
  alignas(64) std::array<std::int32_t, key_tile> position;
  std::int32_t least, greatest;
  bool ordered;  // position[i] is first + i

  KeyTile(const AttentionInputs& a, std::int64_t batch_index, std::int64_t tile);
};

/// A part of a tile of scores outside of which its rows see no keys. Columns begin and end at multiples of 16.
struct Span {
  std::int64_t row, rows, column, columns;
  bool full;  // everything in it is visible, as far as positions go
};
struct Spans {
  std::array<Span, row_tile / row_strip> spans;
  std::int64_t count = 0;

  const Span* begin() const { return spans.data(); }
  const Span* end() const { return spans.data() + count; }
};
Spans visible_spans(const QueryRows& rows, const KeyTile& keys);

}  // namespace jerboa::cpu
