#include "backend/cpu/attention.h"

#include <type_traits>
#include <vector>

#include <jerboa/base/lowest_score.h>

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/scratch.h"
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/attention.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "backend/cpu/attention_scores-inl.h"
#include "backend/cpu/lane_sums-inl.h"
#include "backend/cpu/narrow_floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

// The state of one tile of queries while keys stream past.
struct Running {
  float* queries;  // [row_tile, padded(size)], scaled
  float* out;      // [row_tile, padded(value_size)], not yet divided by the total
  float* top;      // [row_tile]: the largest score
  float* total;    // [row_tile]: the sum of exp(score - top)
};

void start(const AttentionProblem& a, const QueryRows& rows, const Running& running, bool with_sinks) {
  pack_rows(a.q, a.q_strides, rows, a.size, scale_of(a), running.queries);
  std::fill_n(running.out, rows.count * padded(a.value_size), 0.0F);
  for (std::int64_t r = 0; r < row_tile; ++r) {
    const bool sink = with_sinks && a.sinks != nullptr && r < rows.count;
    running.top[r] = sink ? a.sinks[rows.head[r]] : unseen_score;
    running.total[r] = sink ? 1.0F : 0.0F;
  }
}

// Folds a span of scores into the running softmax: scores become exp(score - top), and sums relative to a lower top are
// rescaled.
void absorb(const Span& span, float* scores, const Running& running, std::int64_t out_width) {
  const FloatTag d;
  alignas(64) float reference[row_strip], shrink[row_strip];
  for (std::int64_t strip = 0; strip < span.rows; strip += row_strip) {
    const std::int64_t first = span.row + strip, count = std::min(row_strip, span.rows - strip);
    std::fill_n(reference, row_strip, 0.0F);
    for (std::int64_t r = 0; r < count; ++r) {
      const float* row = scores + (first + r) * key_tile + span.column;
      Floats best = hn::LoadU(d, row);
      for (std::int64_t c = lanes; c < span.columns; c += lanes) best = hn::Max(best, hn::LoadU(d, row + c));
      reference[r] = hn::GetLane(hn::MaxOfLanes(d, best));
    }
    for (std::int64_t r = 0; r < row_strip; r += lanes) {
      const Floats before = hn::LoadU(d, running.top + first + r);
      const Floats top = hn::Max(before, hn::LoadU(d, reference + r));
      hn::StoreU(top, d, running.top + first + r);
      // No key seen yet: any finite reference makes all exponentials 0.
      const Floats safe = hn::IfThenElse(hn::Eq(top, hn::Set(d, unseen_score)), hn::Zero(d), top);
      hn::StoreU(safe, d, reference + r);
      hn::StoreU(exponential(hn::Sub(before, safe)), d, shrink + r);
    }
    for (std::int64_t r = 0; r < count; ++r) {
      float* row = scores + (first + r) * key_tile + span.column;
      const Floats top = hn::Set(d, reference[r]);
      Floats sum = hn::Zero(d);
      for (std::int64_t c = 0; c < span.columns; c += lanes) {
        const Floats weight = exponential(hn::Sub(hn::LoadU(d, row + c), top));
        hn::StoreU(weight, d, row + c);
        sum = hn::Add(sum, weight);
      }
      float& total = running.total[first + r];
      total = total * shrink[r] + hn::GetLane(hn::SumOfLanes(d, sum));
      if (shrink[r] == 1.0F) continue;
      float* out = running.out + (first + r) * out_width;
      const Floats factor = hn::Set(d, shrink[r]);
      for (std::int64_t i = 0; i < out_width; i += lanes)
        hn::StoreU(hn::Mul(hn::LoadU(d, out + i), factor), d, out + i);
    }
  }
}

// Computes lse = top + log(total) of a tile's rows, and 1 / total, or 0 if no key was seen.
void finish_rows(const Running& running, float* lse, float* inverse) {
  const FloatTag d;
  for (std::int64_t r = 0; r < row_tile; r += lanes) {
    const Floats total = hn::LoadU(d, running.total + r);
    const auto seen = ieee::differ(total, hn::Zero(d));
    const Floats some = hn::IfThenElse(seen, total, hn::Set(d, 1.0F));
    const Floats sum = hn::Add(hn::LoadU(d, running.top + r), ieee::log(d, some));
    hn::StoreU(hn::IfThenElse(seen, sum, hn::Set(d, static_cast<float>(unseen_lse))), d, lse + r);
    hn::StoreU(hn::IfThenElseZero(seen, hn::Div(hn::Set(d, 1.0F), some)), d, inverse + r);
  }
}

void store(const AttentionProblem& a, const QueryRows& rows, const Running& running) {
  alignas(64) float lse[row_tile], inverse[row_tile];
  finish_rows(running, lse, inverse);
  for (std::int64_t r = 0; r < rows.count; ++r) {
    a.lse[(rows.batch * a.heads + rows.head[r]) * a.time + rows.time[r]] = lse[r];
    copy_result(
        running.out + r * padded(a.value_size), a.value_size, inverse[r],
        a.out + rows.batch * a.out_strides[0] + rows.head[r] * a.out_strides[1] + rows.time[r] * a.out_strides[2]);
  }
}

std::int64_t running_floats(const AttentionProblem& a) {
  return row_tile * (padded(a.size) + padded(a.value_size) + 2);
}

Running running_at(const AttentionProblem& a, float* memory) {
  float* out = memory + row_tile * padded(a.size);
  float* top = out + row_tile * padded(a.value_size);
  return {memory, out, top, top + row_tile};
}

// Some rows of f32, at a fixed stride.
struct Rows {
  const float* data;
  std::int64_t stride;
};

// Calls use(k, v) with pointers of the caches' type.
template <class Use>
HWY_INLINE auto with_caches(const AttentionProblem& a, const Use& use) {
  if (a.k_half != nullptr) return use(a.k_half, a.v_half);
  if (a.k_packed != nullptr) return use(a.k_packed, a.v_packed);
  return use(a.k, a.v);
}

// Loads features from i on of a row of `size`.
HWY_INLINE Floats load_features(const float* row, std::int64_t, std::int64_t i) {
  return hn::LoadU(FloatTag(), row + i);
}
HWY_INLINE Floats load_features(const std::uint16_t* row, std::int64_t, std::int64_t i) { return load_f16(row + i); }
HWY_INLINE Floats load_features(const std::uint32_t* row, std::int64_t size, std::int64_t i) {
  return load_packed(row, size, i);
}

HWY_INLINE void widen_row(const float* from, std::int64_t width, float* to) { std::copy_n(from, width, to); }
HWY_INLINE void widen_row(const std::uint16_t* from, std::int64_t width, float* to) {
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(load_f16(from + i), FloatTag(), to + i);
  for (; i < width; ++i) to[i] = f16_to_f32(from[i]);
}
HWY_INLINE void widen_row(const std::uint32_t* from, std::int64_t width, float* to) {
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) hn::StoreU(load_packed(from, width, i), FloatTag(), to + i);
  const auto* bytes = reinterpret_cast<const std::int8_t*>(from);
  for (; i < width; ++i) to[i] = static_cast<float>(bytes[i]) * packed_scale(from, width, i);
}

// A tile's keys or values: in place if they are f32 and contiguous, otherwise gathered into `buffer`. An invalid block
// number in the table occurs only for keys that nothing sees, and gives zeros.
template <class T>
Rows cache_rows(const AttentionProblem& a, const T* from, const AttentionInputs::Strides& strides, const KeyTile& keys,
                std::int64_t key_head, std::int64_t width, float* buffer) {
  const bool in_one_piece = a.table == nullptr || a.block % key_tile == 0;
  const auto block_of = [&](std::int64_t key) -> std::int64_t {
    return a.table != nullptr ? a.table[keys.batch * (a.keys / a.block) + key / a.block] : keys.batch;
  };
  const std::int64_t block = a.table != nullptr ? a.block : a.keys, blocks = a.table != nullptr ? a.blocks : a.batch;
  if constexpr (std::is_same_v<T, float>)
    if (in_one_piece) {
      const std::int64_t number = std::clamp<std::int64_t>(block_of(keys.first), 0, blocks - 1);
      return {from + number * strides[0] + key_head * strides[1] + keys.first % block * strides[2], strides[2]};
    }
  for (std::int64_t i = 0; i < keys.count; ++i) {
    const std::int64_t number = block_of(keys.first + i);
    float* to = buffer + i * width;
    if (number < 0 || number >= blocks) {
      std::fill_n(to, width, 0.0F);
      continue;
    }
    widen_row(from + number * strides[0] + key_head * strides[1] + (keys.first + i) % block * strides[2], width, to);
  }
  return {buffer, width};
}

Rows key_rows_of(const AttentionProblem& a, const KeyTile& keys, std::int64_t key_head, float* buffer) {
  return with_caches(
      a, [&](const auto* k, const auto*) { return cache_rows(a, k, a.k_strides, keys, key_head, a.size, buffer); });
}
Rows value_rows_of(const AttentionProblem& a, const KeyTile& keys, std::int64_t key_head, float* buffer) {
  return with_caches(a, [&](const auto*, const auto* v) {
    return cache_rows(a, v, a.v_strides, keys, key_head, a.value_size, buffer);
  });
}

// A few queries, as in decoding, read each key and each value once, in place: transposing and packing would cost more
// than they save.
constexpr std::int64_t direct_rows = 4;

bool is_direct(const AttentionProblem& a, const QueryRows& rows) {
  return rows.count <= direct_rows && a.size % lanes == 0 && a.value_size % lanes == 0;
}

// Calls use(key, its offset in the cache, count) for runs of keys in [begin, end) of a tile that are contiguous in the
// cache; the offset is -1 if the table has no block.
template <class Use>
HWY_INLINE void for_each_run(const AttentionProblem& a, const AttentionInputs::Strides& strides, const KeyTile& keys,
                             std::int64_t key_head, std::int64_t begin, std::int64_t end, const Use& use) {
  const std::int64_t block = a.table != nullptr ? a.block : a.keys;
  for (std::int64_t s = begin; s < end;) {
    const std::int64_t key = keys.first + s, count = std::min(end - s, block - key % block);
    std::int64_t number = keys.batch;
    if (a.table != nullptr) {
      number = a.table[keys.batch * (a.keys / a.block) + key / block];
      if (number >= a.blocks) number = -1;
    }
    const std::int64_t place = number * strides[0] + key_head * strides[1] + key % block * strides[2];
    use(s, number < 0 ? -1 : place, count);
    s += count;
  }
}

// The number of elements in a row of `size` features.
template <class T>
constexpr std::int64_t row_elements(std::int64_t size) {
  return std::is_same_v<T, std::uint32_t> ? packed_words(size) : size;
}

// Prefetches into the L2 cache: keys and values alternate, so that the hardware prefetcher does not predict them. An
// address need not be valid.
template <class T>
HWY_INLINE void prefetch_rows(const T* rows, std::int64_t stride, std::int64_t size, std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t at = 0; at < row_elements<T>(size); at += line) __builtin_prefetch(rows + i * stride + at, 0, 2);
}

// The products of some queries with `count` adjacent keys, whose sums cost less when computed together.
template <int rows, int count, class T>
HWY_INLINE void score_keys(const T* k, std::int64_t stride, std::int64_t size, const float* queries, std::int64_t width,
                           float* scores) {
  const FloatTag d;
  Floats sums[rows][count];
  for (auto& row : sums)
    for (Floats& sum : row) sum = hn::Zero(d);
  for (std::int64_t i = 0; i < size; i += lanes) {
    Floats key[count];
    for (int c = 0; c < count; ++c) key[c] = load_features(k + c * stride, size, i);
    for (int r = 0; r < rows; ++r) {
      const Floats query = hn::LoadU(d, queries + r * width + i);
      for (int c = 0; c < count; ++c) sums[r][c] = hn::MulAdd(query, key[c], sums[r][c]);
    }
  }
  for (int r = 0; r < rows; ++r) {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (count == 4) {
      hn::StoreU(sums_of_lanes(d, sums[r][0], sums[r][1], sums[r][2], sums[r][3]), hn::Full128<float>(),
                 scores + r * key_tile);
      continue;
    }
#endif
    for (int c = 0; c < count; ++c) scores[r * key_tile + c] = hn::GetLane(hn::SumOfLanes(d, sums[r][c]));
  }
}

// scores = queries · keys of a span, 0 past the end of the keys. Prefetches the values that they weigh, and the next
// tile's keys.
template <int rows, class T>
HWY_ATTR void direct_scores(const AttentionProblem& a, const T* k, const T* v, const KeyTile& keys,
                            std::int64_t key_head, const Span& span, const float* queries, float* scores) {
  const std::int64_t width = padded(a.size), end = std::min(span.column + span.columns, keys.count);
  const std::int64_t stride = a.k_strides[2];
  queries += span.row * width;
  scores += span.row * key_tile;
  for_each_run(
      a, a.k_strides, keys, key_head, span.column,
      end, [&](std::int64_t first, std::int64_t place, std::int64_t count) __attribute__((always_inline)) {
        std::int64_t i = 0;
        if (place < 0) {
          for (int r = 0; r < rows; ++r) std::fill_n(scores + r * key_tile + first, count, 0.0F);
          return;
        }
        for (; i + 4 <= count; i += 4) {
          const T* from = k + place + i * stride;
          prefetch_rows(from + key_tile * stride, stride, a.size, 4);
          if (a.k_strides == a.v_strides) prefetch_rows(v + place + i * stride, stride, a.value_size, 4);
          score_keys<rows, 4>(from, stride, a.size, queries, width, scores + first + i);
        }
        for (; i < count; ++i)
          score_keys<rows, 1>(k + place + i * stride, stride, a.size, queries, width, scores + first + i);
      });
  for (int r = 0; r < rows; ++r)
    for (std::int64_t s = end; s < span.column + span.columns; ++s) scores[r * key_tile + s] = 0;
}

// out += weights × values of a span.
template <int rows, class T>
HWY_ATTR void direct_values(const AttentionProblem& a, const T* v, const KeyTile& keys, std::int64_t key_head,
                            const Span& span, const float* weights, float* out) {
  const FloatTag d;
  constexpr std::int64_t vectors = rows <= 2 ? 4 : 2;
  const std::int64_t width = padded(a.value_size), end = std::min(span.column + span.columns, keys.count);
  weights += span.row * key_tile;
  out += span.row * width;
  for (std::int64_t first = 0; first < a.value_size; first += vectors * lanes) {
    const std::int64_t count = std::min(vectors, (a.value_size - first) / lanes);
    Floats sums[rows][vectors];
    for (int r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < count; ++i) sums[r][i] = hn::LoadU(d, out + r * width + first + i * lanes);
    const auto add = [&](std::int64_t s, const T* values, auto some) __attribute__((always_inline)) {
      for (std::int64_t i = 0; i < some; ++i) {
        const Floats value = load_features(values, a.value_size, first + i * lanes);
        for (int r = 0; r < rows; ++r)
          sums[r][i] = hn::MulAdd(hn::Set(d, weights[r * key_tile + s]), value, sums[r][i]);
      }
    };
    for_each_run(
        a, a.v_strides, keys, key_head, span.column,
        end, [&](std::int64_t s, std::int64_t place, std::int64_t run) __attribute__((always_inline)) {
          if (place < 0) return;
          const T* values = v + place;
          if (count == vectors)
            for (std::int64_t i = 0; i < run; ++i)
              add(s + i, values + i * a.v_strides[2], std::integral_constant<std::int64_t, vectors>());
          else
            for (std::int64_t i = 0; i < run; ++i) add(s + i, values + i * a.v_strides[2], count);
        });
    for (int r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < count; ++i) hn::StoreU(sums[r][i], d, out + r * width + first + i * lanes);
  }
}

template <int rows>
HWY_ATTR void absorb_directly(const AttentionProblem& a, const QueryRows& queries, const KeyTile& keys,
                              std::int64_t key_head, const Span& span, const Running& running, float* scores) {
  with_caches(a, [&](const auto* k, const auto* v) {
    direct_scores<rows>(a, k, v, keys, key_head, span, running.queries, scores);
  });
  finish_scores(a, queries, keys, span, scores, nullptr);
  absorb(span, scores, running, padded(a.value_size));
  with_caches(
      a, [&](const auto*, const auto* v) { direct_values<rows>(a, v, keys, key_head, span, scores, running.out); });
}

void absorb_directly(const AttentionProblem& a, const QueryRows& queries, const KeyTile& keys, std::int64_t key_head,
                     const Span& span, const Running& running, float* scores) {
  switch (span.rows) {
    case 1: return absorb_directly<1>(a, queries, keys, key_head, span, running, scores);
    case 2: return absorb_directly<2>(a, queries, keys, key_head, span, running, scores);
    case 3: return absorb_directly<3>(a, queries, keys, key_head, span, running, scores);
    default: return absorb_directly<4>(a, queries, keys, key_head, span, running, scores);
  }
}

// Streams the key tiles [first_key_tile, end_key_tile) past some tiles of queries.
void stream_keys(const AttentionProblem& a, std::int64_t batch, std::int64_t key_head, const QueryRows* rows,
                 const Running* running, std::int64_t count, std::int64_t first_key_tile, std::int64_t end_key_tile) {
  static thread_local Scratch<float> scratch;
  const std::int64_t width = padded(a.value_size);
  float* scores = scratch.get(row_tile * key_tile + key_tile * (a.size + width + std::max(a.size, a.value_size)));
  float* keys_transposed = scores + row_tile * key_tile;
  float* packed_values = keys_transposed + key_tile * a.size;
  float* gathered = packed_values + key_tile * width;
  for (std::int64_t tile = first_key_tile; tile < end_key_tile; ++tile) {
    const KeyTile keys(a, batch, tile);
    Rows values{nullptr, 0};
    for (std::int64_t i = 0; i < count; ++i) {
      const Spans spans = visible_spans(rows[i], keys);
      if (spans.count == 0) continue;
      if (is_direct(a, rows[i])) {
        for (const Span& span : spans) absorb_directly(a, rows[i], keys, key_head, span, running[i], scores);
        continue;
      }
      if (values.data == nullptr) {
        const Rows rows_of_k = key_rows_of(a, keys, key_head, gathered);
        transpose_tile(rows_of_k.data, rows_of_k.stride, keys.count, a.size, keys_transposed, key_tile);
        values = value_rows_of(a, keys, key_head, gathered);
      }
      // Rows a large stride apart conflict in the cache, which matters only if they are read repeatedly.
      if (values.data != packed_values && (width != a.value_size || (values.stride != width && rows[i].count > 8))) {
        for (std::int64_t s = 0; s < keys.count; ++s)
          copy_row(values.data + s * values.stride, a.value_size, 1, packed_values + s * width);
        values = {packed_values, width};
      }
      for (const Span& span : spans) {
        multiply({running[i].queries + span.row * padded(a.size), padded(a.size), 1}, keys_transposed + span.column,
                 key_tile, scores + span.row * key_tile + span.column, key_tile, span.rows, span.columns, a.size,
                 false);
        finish_scores(a, rows[i], keys, span, scores, nullptr);
        absorb(span, scores, running[i], width);
        multiply({scores + span.row * key_tile + span.column, key_tile, 1}, values.data + span.column * values.stride,
                 values.stride, running[i].out + span.row * width, width, span.rows, width,
                 std::min(span.columns, keys.count - span.column), true);
      }
    }
  }
}

}  // namespace

constexpr std::int64_t most_tiles_a_task = 4;

// A task: tiles_per_task tiles of queries of one (batch, key head) against all keys.
void attend(const AttentionProblem& a, std::int64_t tiles_per_task, std::int64_t task) {
  static thread_local Scratch<float> scratch;
  const RowTiling tiling(a);
  const std::int64_t tasks_per_head = detail::divide_up(tiling.count, tiles_per_task);
  const std::int64_t key_head = task / tasks_per_head % a.key_heads, batch = task / tasks_per_head / a.key_heads;
  const std::int64_t first = task % tasks_per_head * tiles_per_task,
                     count = std::min(tiles_per_task, tiling.count - first);
  float* memory = scratch.get(count * running_floats(a));
  Running running[most_tiles_a_task];
  static thread_local std::vector<QueryRows> rows;
  rows.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    running[i] = running_at(a, memory + i * running_floats(a));
    rows.push_back(tiling.rows(a, batch, key_head, first + i));
    start(a, rows[i], running[i], true);
  }
  stream_keys(a, batch, key_head, rows.data(), running, count, 0, detail::divide_up(a.keys, key_tile));
  for (std::int64_t i = 0; i < count; ++i) store(a, rows[i], running[i]);
}

// A task of the split form: one tile of queries against a part of the keys, stored in `memory` as a Running.
void attend_part(const AttentionProblem& a, std::int64_t key_tiles, std::int64_t parts, std::int64_t task,
                 float* memory) {
  const RowTiling tiling(a);
  const std::int64_t part = task % parts, tile = task / parts % tiling.count;
  const std::int64_t key_head = task / parts / tiling.count % a.key_heads;
  const std::int64_t batch = task / parts / tiling.count / a.key_heads;
  const QueryRows rows = tiling.rows(a, batch, key_head, tile);
  const Running running = running_at(a, memory);
  start(a, rows, running, part == 0);
  stream_keys(a, batch, key_head, &rows, &running, 1, part * key_tiles,
              std::min((part + 1) * key_tiles, detail::divide_up(a.keys, key_tile)));
}

// Combines the parts of one tile of queries into the first, and stores it.
void join_parts(const AttentionProblem& a, std::int64_t parts, std::int64_t task, float* memory) {
  const RowTiling tiling(a);
  const std::int64_t key_head = task / tiling.count % a.key_heads, batch = task / tiling.count / a.key_heads;
  const QueryRows rows = tiling.rows(a, batch, key_head, task % tiling.count);
  const Running joined = running_at(a, memory);
  const FloatTag d;
  const std::int64_t width = padded(a.value_size);
  for (std::int64_t part = 1; part < parts; ++part) {
    const Running other = running_at(a, memory + part * running_floats(a));
    for (std::int64_t r = 0; r < rows.count; ++r) {
      if (other.total[r] == 0) continue;
      const float top = std::max(joined.top[r], other.top[r]);
      const float joined_factor = std::exp(joined.top[r] - top), other_factor = std::exp(other.top[r] - top);
      joined.top[r] = top;
      joined.total[r] = joined.total[r] * joined_factor + other.total[r] * other_factor;
      float* to = joined.out + r * width;
      const float* from = other.out + r * width;
      for (std::int64_t i = 0; i < width; i += lanes)
        hn::StoreU(hn::MulAdd(hn::LoadU(d, from + i), hn::Set(d, other_factor),
                              hn::Mul(hn::LoadU(d, to + i), hn::Set(d, joined_factor))),
                   d, to + i);
    }
  }
  store(a, rows, joined);
}

std::int64_t part_floats(const AttentionProblem& a) { return running_floats(a); }

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {
namespace {

HWY_EXPORT(attend);
HWY_EXPORT(attend_part);
HWY_EXPORT(join_parts);
HWY_EXPORT(part_floats);

// With few queries a task is a part of the keys; otherwise it is some queries. Both depend only on the shape.
constexpr std::int64_t few_queries = 16;
constexpr std::int64_t key_tiles_a_part = 8;
constexpr std::int64_t few_parts = 32;  // this many are combined faster on one thread
constexpr std::int64_t wanted_tasks = 32;

}  // namespace

void run_attention(const AttentionProblem& a, ThreadPool& pool) {
  if (a.batch * a.heads * a.time == 0) return;
  const RowTiling tiling(a);
  const std::int64_t parts = detail::divide_up(detail::divide_up(a.keys, key_tile), key_tiles_a_part);
  const std::int64_t tiles = a.batch * a.key_heads * tiling.count;
  if (a.time * group_of(a) <= few_queries && parts > 1) {
    static thread_local Scratch<float> scratch;
    const std::int64_t floats = HWY_DYNAMIC_DISPATCH(part_floats)(a);
    float* memory = scratch.get(tiles * parts * floats);
    pool.run(tiles * parts, [&](std::int64_t task, int) {
      HWY_DYNAMIC_DISPATCH(attend_part)(a, key_tiles_a_part, parts, task, memory + task * floats);
    });
    const auto join = [&](std::int64_t task, int) {
      HWY_DYNAMIC_DISPATCH(join_parts)(a, parts, task, memory + task * parts * floats);
    };
    if (tiles * parts <= few_parts)
      pool.run_alone(tiles, join);
    else
      pool.run(tiles, join);
    return;
  }
  const std::int64_t tiles_per_task = std::clamp<std::int64_t>(tiles / wanted_tasks, 1, 4);
  pool.run(a.batch * a.key_heads * detail::divide_up(tiling.count, tiles_per_task), [&](std::int64_t task, int) {
    HWY_DYNAMIC_DISPATCH(attend)(a, tiles_per_task, task);
  });
}

}  // namespace jerboa::cpu
#endif
