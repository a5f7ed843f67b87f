#include "backend/cpu/attention_tiles.h"

#include "base/integers.h"

namespace jerboa::cpu {
namespace {

constexpr std::int32_t no_limit = std::numeric_limits<std::int32_t>::max();

std::int32_t clamp_position(std::int64_t position) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(position, 0, no_limit));
}

constexpr std::int64_t columns_multiple = 16;

bool can_see(const VisibleRange& visible, std::int32_t least, std::int32_t greatest) {
  return greatest >= visible.least_low && least < visible.most_high;
}

bool sees_all(const VisibleRange& visible, std::int32_t least, std::int32_t greatest) {
  return least >= visible.most_low && greatest < visible.least_high;
}

}  // namespace

QueryRows::QueryRows(const AttentionInputs& a, std::int64_t batch_index, std::int64_t first_head, std::int64_t heads,
                     std::int64_t first_time, std::int64_t times)
    : batch(batch_index), count(heads * times) {
  const std::int64_t length = a.lengths != nullptr ? a.lengths[batch] : no_limit;
  for (auto& strip : strips) strip = {no_limit, 0, no_limit, 0};
  all = {no_limit, 0, no_limit, 0};
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t t = first_time + r % times;
    head[r] = first_head + r / times;
    time[r] = t;
    const std::int64_t query = a.positions != nullptr
                                   ? a.positions[batch * a.position_strides[0] + t * a.position_strides[1]]
                                   : t + a.keys - a.time;
    low[r] = a.window > 0 ? clamp_position(query - a.window + 1) : 0;
    high[r] = clamp_position(a.causal ? std::min(length, query + 1) : length);
    for (VisibleRange* visible : {&strips[r / row_strip], &all}) {
      visible->least_low = std::min(visible->least_low, low[r]);
      visible->most_low = std::max(visible->most_low, low[r]);
      visible->least_high = std::min(visible->least_high, high[r]);
      visible->most_high = std::max(visible->most_high, high[r]);
    }
  }
}

RowTiling::RowTiling(const AttentionInputs& a) {
  if (a.time == 0) return;
  const std::int64_t group = group_of(a);
  if (a.time < row_tile) heads_per_tile = std::min(group, row_tile / a.time);
  tiles_per_head = detail::divide_up(a.time, row_tile);
  count = heads_per_tile > 1 ? detail::divide_up(group, heads_per_tile) : group * tiles_per_head;
}

QueryRows RowTiling::rows(const AttentionInputs& a, std::int64_t batch, std::int64_t key_head,
                          std::int64_t tile) const {
  const std::int64_t group = group_of(a), head = key_head * group;
  if (heads_per_tile > 1) {
    const std::int64_t first = tile * heads_per_tile;
    return {a, batch, head + first, std::min(heads_per_tile, group - first), 0, a.time};
  }
  const std::int64_t first = tile % tiles_per_head * row_tile;
  return {a, batch, head + tile / tiles_per_head, 1, first, std::min(row_tile, a.time - first)};
}

KeyTile::KeyTile(const AttentionInputs& a, std::int64_t batch_index, std::int64_t tile)
    : batch(batch_index), first(tile * key_tile), count(std::min(key_tile, a.keys - first)), ordered(!a.ring) {
  position.fill(-1);
  least = no_limit;
  greatest = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t at = first + i;
    if (a.ring) {
      const std::int64_t last = static_cast<std::int64_t>(a.lengths[batch]) - 1;
      at = last - ((last - at) % a.keys + a.keys) % a.keys;
    }
    position[i] = static_cast<std::int32_t>(std::max<std::int64_t>(at, -1));
    least = std::min(least, position[i]);
    greatest = std::max(greatest, position[i]);
  }
}

Spans visible_spans(const QueryRows& rows, const KeyTile& keys) {
  Spans result;
  if (!can_see(rows.all, keys.least, keys.greatest)) return result;
  const std::int64_t columns = detail::round_up(keys.count, columns_multiple);
  if (columns == keys.count && sees_all(rows.all, keys.least, keys.greatest)) {
    result.spans[result.count++] = {0, rows.count, 0, columns, true};
    return result;
  }
  for (std::int64_t row = 0; row < rows.count; row += row_strip) {
    const VisibleRange& visible = rows.strips[row / row_strip];
    if (!can_see(visible, keys.least, keys.greatest)) continue;
    Span span{row, std::min(row_strip, rows.count - row), 0, columns, false};
    if (keys.ordered) {
      const std::int64_t from = std::max<std::int64_t>(visible.least_low - keys.first, 0);
      const std::int64_t to = std::min<std::int64_t>(visible.most_high - keys.first, keys.count);
      span.column = from / columns_multiple * columns_multiple;
      const std::int64_t end = detail::round_up(to, columns_multiple);
      span.columns = end - span.column;
      span.full = end <= keys.count && sees_all(visible, static_cast<std::int32_t>(keys.first + span.column),
                                                static_cast<std::int32_t>(keys.first + end - 1));
    } else {
      span.full = columns == keys.count && sees_all(visible, keys.least, keys.greatest);
    }
    if (span.columns > 0) result.spans[result.count++] = span;
  }
  return result;
}

}  // namespace jerboa::cpu
