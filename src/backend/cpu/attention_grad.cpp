#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/scratch.h"
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention_grad.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "backend/cpu/attention_scores-inl.h"
#include "base/integers.h"

// Probabilities are recomputed from the log-sum-exp of each row. With p = exp(score - lse), dp = dout vᵀ and
// mean = dout · out, the gradient of a score is p (dp - mean).
HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

// A packed tile of queries. q is scaled, so that dk needs no scale; dq is scaled at the end.
struct PackedQueries {
  float *q, *dout;    // [row_tile, padded(size)], [row_tile, padded(value_size)]
  float *lse, *mean;  // [row_tile]
};

struct PackedKeys {
  float *transposed, *values_transposed;  // [size, key_tile], [value_size, key_tile]
  float* rows;                            // [key_tile, padded(size)]
};

struct Tiles {
  PackedQueries queries;
  PackedKeys keys;
  float *weights, *dscores, *slopes;  // [row_tile, key_tile] each
  float *dk, *dv;                     // [key_tile, padded(size)], [key_tile, padded(value_size)]
};

Tiles tiles_in_scratch(const AttentionGradProblem& a) {
  static thread_local Scratch<float> scratch;
  const std::int64_t size = padded(a.size), value_size = padded(a.value_size);
  float* next = scratch.get(row_tile * (size + value_size + 2) + key_tile * (a.size + a.value_size + size) +
                            3 * row_tile * key_tile + key_tile * (size + value_size));
  const std::int64_t counts[] = {row_tile * size,     row_tile * value_size,   row_tile,        row_tile,
                                 key_tile * a.size,   key_tile * a.value_size, key_tile * size, row_tile * key_tile,
                                 row_tile * key_tile, row_tile * key_tile,     key_tile * size, key_tile * value_size};
  float* parts[std::size(counts)];
  for (std::size_t i = 0; i < std::size(counts); ++i) {
    parts[i] = next;
    next += counts[i];
  }
  return {{parts[0], parts[1], parts[2], parts[3]},
          {parts[4], parts[5], parts[6]},
          parts[7],
          parts[8],
          parts[9],
          parts[10],
          parts[11]};
}

void pack(const AttentionGradProblem& a, const QueryRows& rows, const float* means, const PackedQueries& to) {
  pack_rows(a.q, a.q_strides, rows, a.size, scale_of(a), to.q);
  pack_rows(a.dout, a.dout_strides, rows, a.value_size, 1, to.dout);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const std::int64_t at = (rows.batch * a.heads + rows.head[r]) * a.time + rows.time[r];
    to.lse[r] = a.lse[at];
    to.mean[r] = means[at];
  }
}

void pack(const AttentionGradProblem& a, const KeyTile& keys, std::int64_t key_head, const PackedKeys& to) {
  const float* k = key_rows(a.k, a.k_strides, keys, key_head);
  transpose_tile(k, a.k_strides[2], keys.count, a.size, to.transposed, key_tile);
  transpose_tile(key_rows(a.v, a.v_strides, keys, key_head), a.v_strides[2], keys.count, a.value_size,
                 to.values_transposed, key_tile);
  for (std::int64_t s = 0; s < keys.count; ++s)
    copy_row(k + s * a.k_strides[2], a.size, 1, to.rows + s * padded(a.size));
}

// Computes weights and dscores in a span: the probabilities and the gradients of the scores, before the soft cap if
// `through_cap`.
void differentiate(const AttentionGradProblem& a, const QueryRows& rows, const KeyTile& keys, const Span& span,
                   const Tiles& tiles, bool through_cap) {
  const FloatTag d;
  const std::int64_t size = padded(a.size), value_size = padded(a.value_size);
  const std::int64_t at = span.row * key_tile + span.column;
  multiply({tiles.queries.q + span.row * size, size, 1}, tiles.keys.transposed + span.column, key_tile,
           tiles.weights + at, key_tile, span.rows, span.columns, a.size, false);
  multiply({tiles.queries.dout + span.row * value_size, value_size, 1}, tiles.keys.values_transposed + span.column,
           key_tile, tiles.dscores + at, key_tile, span.rows, span.columns, a.value_size, false);
  const bool bent = through_cap && a.soft_cap > 0;
  finish_scores(a, rows, keys, span, tiles.weights, bent ? tiles.slopes : nullptr);
  for (std::int64_t r = span.row; r < span.row + span.rows; ++r) {
    const Floats lse = hn::Set(d, tiles.queries.lse[r]), mean = hn::Set(d, tiles.queries.mean[r]);
    for (std::int64_t c = r * key_tile + span.column; c < r * key_tile + span.column + span.columns; c += lanes) {
      const Floats weight = exponential(hn::Sub(hn::LoadU(d, tiles.weights + c), lse));
      Floats dscore = hn::Mul(weight, hn::Sub(hn::LoadU(d, tiles.dscores + c), mean));
      if (bent) dscore = hn::Mul(dscore, hn::LoadU(d, tiles.slopes + c));
      hn::StoreU(weight, d, tiles.weights + c);
      hn::StoreU(dscore, d, tiles.dscores + c);
    }
  }
}

// Adds the contributions of a tile of queries and a tile of keys to each other's gradients; null ones are skipped.
void exchange(const AttentionGradProblem& a, const QueryRows& rows, const KeyTile& keys, const Tiles& tiles, float* dq,
              bool with_keys) {
  const std::int64_t size = padded(a.size), value_size = padded(a.value_size);
  for (const Span& span : visible_spans(rows, keys)) {
    differentiate(a, rows, keys, span, tiles, true);
    const std::int64_t at = span.row * key_tile + span.column;
    if (with_keys) {
      multiply({tiles.weights + at, 1, key_tile}, tiles.queries.dout + span.row * value_size, value_size,
               tiles.dv + span.column * value_size, value_size, span.columns, value_size, span.rows, true);
      multiply({tiles.dscores + at, 1, key_tile}, tiles.queries.q + span.row * size, size,
               tiles.dk + span.column * size, size, span.columns, size, span.rows, true);
    }
    if (dq != nullptr)
      multiply({tiles.dscores + at, key_tile, 1}, tiles.keys.rows + span.column * size, size, dq + span.row * size,
               size, span.rows, size, std::min(span.columns, keys.count - span.column), true);
  }
}

void store_query_gradient(const AttentionGradProblem& a, const QueryRows& rows, const float* dq) {
  const float scale = scale_of(a);
  for (std::int64_t r = 0; r < rows.count; ++r)
    copy_result(dq + r * padded(a.size), a.size, scale,
                a.dq + rows.batch * a.dq_strides[0] + rows.head[r] * a.dq_strides[1] + rows.time[r] * a.dq_strides[2]);
}

void clear_key_gradients(const AttentionGradProblem& a, const Tiles& tiles) {
  std::fill_n(tiles.dk, key_tile * padded(a.size), 0.0F);
  std::fill_n(tiles.dv, key_tile * padded(a.value_size), 0.0F);
}

void store_key_gradients(const AttentionGradProblem& a, const KeyTile& keys, std::int64_t key_head,
                         const Tiles& tiles) {
  for (std::int64_t i = 0; i < keys.count; ++i) {
    const std::int64_t s = keys.first + i;
    copy_result(tiles.dk + i * padded(a.size), a.size, 1,
                a.dk + keys.batch * a.dk_strides[0] + key_head * a.dk_strides[1] + s * a.dk_strides[2]);
    copy_result(tiles.dv + i * padded(a.value_size), a.value_size, 1,
                a.dv + keys.batch * a.dv_strides[0] + key_head * a.dv_strides[1] + s * a.dv_strides[2]);
  }
}

}  // namespace

// Computes mean[t] = dout · out for one (batch, head).
void means_of_head(const AttentionGradProblem& a, std::int64_t task, float* means) {
  const FloatTag d;
  const std::int64_t head = task % a.heads, batch = task / a.heads;
  for (std::int64_t t = 0; t < a.time; ++t) {
    const float* x = a.out + batch * a.out_strides[0] + head * a.out_strides[1] + t * a.out_strides[2];
    const float* y = a.dout + batch * a.dout_strides[0] + head * a.dout_strides[1] + t * a.dout_strides[2];
    Floats sum = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + lanes <= a.value_size; i += lanes) sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < a.value_size; ++i) total += x[i] * y[i];
    means[task * a.time + t] = total;
  }
}

// A task that computes all gradients of one (batch, key head).
void differentiate_head(const AttentionGradProblem& a, const float* means, std::int64_t task) {
  static thread_local Scratch<float> scratch;
  const RowTiling tiling(a);
  const std::int64_t key_head = task % a.key_heads, batch = task / a.key_heads;
  const std::int64_t dq_tile = row_tile * padded(a.size);
  float* dq = scratch.get(tiling.count * dq_tile);
  std::fill_n(dq, tiling.count * dq_tile, 0.0F);
  const Tiles tiles = tiles_in_scratch(a);
  static thread_local std::vector<QueryRows> rows;
  rows.clear();
  for (std::int64_t i = 0; i < tiling.count; ++i) rows.push_back(tiling.rows(a, batch, key_head, i));
  for (std::int64_t tile = 0; tile < detail::divide_up(a.keys, key_tile); ++tile) {
    const KeyTile keys(a, batch, tile);
    pack(a, keys, key_head, tiles.keys);
    clear_key_gradients(a, tiles);
    for (std::int64_t i = 0; i < tiling.count; ++i) {
      if (visible_spans(rows[i], keys).count == 0) continue;
      pack(a, rows[i], means, tiles.queries);
      exchange(a, rows[i], keys, tiles, dq + i * dq_tile, true);
    }
    store_key_gradients(a, keys, key_head, tiles);
  }
  for (std::int64_t i = 0; i < tiling.count; ++i) store_query_gradient(a, rows[i], dq + i * dq_tile);
}

// A task that computes dq of one tile of queries.
void differentiate_queries(const AttentionGradProblem& a, const float* means, std::int64_t task) {
  static thread_local Scratch<float> scratch;
  const RowTiling tiling(a);
  const std::int64_t key_head = task / tiling.count % a.key_heads, batch = task / tiling.count / a.key_heads;
  const QueryRows rows = tiling.rows(a, batch, key_head, task % tiling.count);
  float* dq = scratch.get(row_tile * padded(a.size));
  std::fill_n(dq, row_tile * padded(a.size), 0.0F);
  const Tiles tiles = tiles_in_scratch(a);
  pack(a, rows, means, tiles.queries);
  for (std::int64_t tile = 0; tile < detail::divide_up(a.keys, key_tile); ++tile) {
    const KeyTile keys(a, batch, tile);
    if (visible_spans(rows, keys).count == 0) continue;
    pack(a, keys, key_head, tiles.keys);
    exchange(a, rows, keys, tiles, dq, false);
  }
  store_query_gradient(a, rows, dq);
}

// A task that computes dk and dv of one tile of keys.
void differentiate_keys(const AttentionGradProblem& a, const float* means, std::int64_t task) {
  const RowTiling tiling(a);
  const std::int64_t key_tiles = detail::divide_up(a.keys, key_tile);
  const std::int64_t key_head = task / key_tiles % a.key_heads, batch = task / key_tiles / a.key_heads;
  const KeyTile keys(a, batch, task % key_tiles);
  const Tiles tiles = tiles_in_scratch(a);
  pack(a, keys, key_head, tiles.keys);
  clear_key_gradients(a, tiles);
  for (std::int64_t i = 0; i < tiling.count; ++i) {
    const QueryRows rows = tiling.rows(a, batch, key_head, i);
    if (visible_spans(rows, keys).count == 0) continue;
    pack(a, rows, means, tiles.queries);
    exchange(a, rows, keys, tiles, nullptr, true);
  }
  store_key_gradients(a, keys, key_head, tiles);
}

// A task that computes one tile of dmask, summed over the axes along which the mask broadcasts.
void differentiate_mask(const AttentionGradProblem& a, const float* means, std::int64_t task) {
  const std::array<std::int64_t, 4> counts{a.batch, a.heads, detail::divide_up(a.time, row_tile),
                                           detail::divide_up(a.keys, key_tile)};
  std::array<std::int64_t, 4> first{}, end = counts;  // the part of each axis that the task sums over
  for (std::size_t axis = 4; axis-- > 0;) {
    if (a.dmask_strides[axis] == 0) continue;
    first[axis] = task % counts[axis];
    end[axis] = first[axis] + 1;
    task /= counts[axis];
  }
  const bool varies_by_row = a.dmask_strides[2] != 0, varies_by_key = a.dmask_strides[3] != 0;
  const Tiles tiles = tiles_in_scratch(a);
  alignas(64) float sums[row_tile * key_tile] = {};
  for (std::int64_t b = first[0]; b < end[0]; ++b)
    for (std::int64_t h = first[1]; h < end[1]; ++h)
      for (std::int64_t k = first[3]; k < end[3]; ++k) {
        const KeyTile keys(a, b, k);
        pack(a, keys, h / group_of(a), tiles.keys);
        for (std::int64_t i = first[2]; i < end[2]; ++i) {
          const QueryRows rows(a, b, h, 1, i * row_tile, std::min(row_tile, a.time - i * row_tile));
          const Spans spans = visible_spans(rows, keys);
          if (spans.count > 0) pack(a, rows, means, tiles.queries);
          for (const Span& span : spans) {
            differentiate(a, rows, keys, span, tiles, false);
            const std::int64_t columns_end = std::min(span.column + span.columns, keys.count);
            for (std::int64_t r = span.row; r < span.row + span.rows; ++r)
              for (std::int64_t c = span.column; c < columns_end; ++c)
                sums[(varies_by_row ? r : 0) * key_tile + (varies_by_key ? c : 0)] += tiles.dscores[r * key_tile + c];
          }
        }
      }
  const std::int64_t row = first[2] * row_tile, column = first[3] * key_tile;
  const std::int64_t rows = varies_by_row ? std::min(row_tile, a.time - row) : 1;
  const std::int64_t columns = varies_by_key ? std::min(key_tile, a.keys - column) : 1;
  float* to = a.dmask + first[0] * a.dmask_strides[0] + first[1] * a.dmask_strides[1] + row * a.dmask_strides[2] +
              column * a.dmask_strides[3];
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      to[r * a.dmask_strides[2] + c * a.dmask_strides[3]] = sums[r * key_tile + c];
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {
namespace {

HWY_EXPORT(means_of_head);
HWY_EXPORT(differentiate_head);
HWY_EXPORT(differentiate_queries);
HWY_EXPORT(differentiate_keys);
HWY_EXPORT(differentiate_mask);

// With fewer (batch, key head) pairs than this, tasks are tiles, and probabilities are computed twice.
constexpr std::int64_t enough_heads = 16;

// The sink takes part in the softmax but has no value: its gradient is -p * mean.
void sink_gradient(const AttentionGradProblem& a, const float* means, std::int64_t head) {
  double total = 0;
  for (std::int64_t b = 0; b < a.batch; ++b)
    for (std::int64_t t = 0; t < a.time; ++t) {
      const std::int64_t at = (b * a.heads + head) * a.time + t;
      total -= std::exp(a.sinks[head] - a.lse[at]) * means[at];
    }
  a.dsinks[head] = static_cast<float>(total);
}

std::int64_t mask_tasks(const AttentionGradProblem& a) {
  const std::int64_t counts[] = {a.batch, a.heads, detail::divide_up(a.time, row_tile),
                                 detail::divide_up(a.keys, key_tile)};
  std::int64_t tasks = 1;
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (a.dmask_strides[axis] != 0) tasks *= counts[axis];
  return tasks;
}

}  // namespace

void run_attention_grad(const AttentionGradProblem& a, ThreadPool& pool) {
  static thread_local Scratch<float> scratch;
  float* means = scratch.get(a.batch * a.heads * a.time);
  pool.run(a.batch * a.heads, [&](std::int64_t task, int) { HWY_DYNAMIC_DISPATCH(means_of_head)(a, task, means); });
  const std::int64_t pairs = a.batch * a.key_heads;
  if (pairs >= enough_heads) {
    pool.run(pairs, [&](std::int64_t task, int) { HWY_DYNAMIC_DISPATCH(differentiate_head)(a, means, task); });
  } else {
    pool.run(pairs * RowTiling(a).count, [&](std::int64_t task, int) {
      HWY_DYNAMIC_DISPATCH(differentiate_queries)(a, means, task);
    });
    pool.run(pairs * detail::divide_up(a.keys, key_tile), [&](std::int64_t task, int) {
      HWY_DYNAMIC_DISPATCH(differentiate_keys)(a, means, task);
    });
  }
  if (a.dsinks != nullptr) pool.run(a.heads, [&](std::int64_t head, int) { sink_gradient(a, means, head); });
  if (a.dmask != nullptr)
    pool.run(mask_tasks(a), [&](std::int64_t task, int) { HWY_DYNAMIC_DISPATCH(differentiate_mask)(a, means, task); });
}

}  // namespace jerboa::cpu
#endif
