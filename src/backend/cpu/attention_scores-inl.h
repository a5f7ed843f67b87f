// Computes scores from products of queries and keys, on a tile, for attention and its gradient.
#if defined(JERBOA_BACKEND_CPU_ATTENTION_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_BACKEND_CPU_ATTENTION_SCORES_INL_H
#undef JERBOA_BACKEND_CPU_ATTENTION_SCORES_INL_H
#else
#define JERBOA_BACKEND_CPU_ATTENTION_SCORES_INL_H
#endif

#include "backend/cpu/attention_tiles.h"
#include "backend/cpu/math-inl.h"
#include "backend/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

constexpr float unseen_score = -std::numeric_limits<float>::infinity();

// Reads a mask's entries of one row of a tile, whatever its stride.
template <class T>
HWY_INLINE const T* mask_row(const AttentionInputs& a, const T* mask, const QueryRows& rows, const KeyTile& keys,
                             std::int64_t row, T* buffer) {
  const auto& strides = a.mask_strides;
  const T* from = mask + rows.batch * strides[0] + rows.head[row] * strides[1] + rows.time[row] * strides[2] +
                  keys.first * strides[3];
  if (strides[3] == 1 && keys.count == key_tile) return from;
  for (std::int64_t i = 0; i < keys.count; ++i) buffer[i] = from[i * strides[3]];
  for (std::int64_t i = keys.count; i < key_tile; ++i) buffer[i] = 0;
  return buffer;
}

// Turns the scaled products of a span of scores[row_tile, key_tile] into scores, minus infinity where a row does not
// see the key. `slopes`, if not null, receives the soft cap's derivative.
inline HWY_NOINLINE void finish_scores(const AttentionInputs& a, const QueryRows& rows, const KeyTile& keys,
                                       const Span& span, float* scores, float* slopes) {
  const bool masked = a.mask_float != nullptr || a.mask_bool != nullptr;
  if (span.full && !masked && a.soft_cap == 0) return;
  const FloatTag d;
  const IntTag di;
  alignas(64) float added_buffer[key_tile];
  alignas(64) std::uint32_t seen_buffer[key_tile];
  const Floats cap = hn::Set(d, a.soft_cap), inverse_cap = hn::Set(d, a.soft_cap > 0 ? 1 / a.soft_cap : 0);
  const Floats hidden = hn::Set(d, a.mask_hidden);
  for (std::int64_t r = span.row; r < span.row + span.rows; ++r) {
    float* row = scores + r * key_tile;
    const float* added = a.mask_float != nullptr ? mask_row(a, a.mask_float, rows, keys, r, added_buffer) : nullptr;
    const std::uint32_t* seen = a.mask_bool != nullptr ? mask_row(a, a.mask_bool, rows, keys, r, seen_buffer) : nullptr;
    const auto low = hn::Set(di, rows.low[r]), high = hn::Set(di, rows.high[r]);
    for (std::int64_t c = span.column; c < span.column + span.columns; c += lanes) {
      Floats score = hn::LoadU(d, row + c);
      if (a.soft_cap > 0) {
        const Floats bent = hn::Tanh(d, hn::Mul(score, inverse_cap));
        if (slopes != nullptr) hn::StoreU(hn::NegMulAdd(bent, bent, hn::Set(d, 1.0F)), d, slopes + r * key_tile + c);
        score = hn::Mul(bent, cap);
      }
      const auto position = hn::LoadU(di, keys.position.data() + c);
      auto visible = hn::AndNot(hn::Lt(position, low), hn::Lt(position, high));
      if (added != nullptr) {
        const Floats mask_values = hn::LoadU(d, added + c);
        score = hn::Add(score, mask_values);
        visible = hn::AndNot(hn::RebindMask(di, hn::Le(mask_values, hidden)), visible);
      }
      if (seen != nullptr) {
        const auto flags = hn::BitCast(di, hn::LoadU(hn::RebindToUnsigned<FloatTag>(), seen + c));
        visible = hn::AndNot(hn::Eq(flags, hn::Zero(di)), visible);
      }
      score = hn::IfThenElse(hn::RebindMask(d, visible), score, hn::Set(d, unseen_score));
      hn::StoreU(score, d, row + c);
    }
  }
}

// Rows of q, out or their gradients, packed with a row stride of padded(width).
inline HWY_NOINLINE void pack_rows(const float* from, const AttentionInputs::Strides& strides, const QueryRows& rows,
                                   std::int64_t width, float scale, float* to) {
  for (std::int64_t r = 0; r < rows.count; ++r)
    copy_row(from + rows.batch * strides[0] + rows.head[r] * strides[1] + rows.time[r] * strides[2], width, scale,
             to + r * padded(width));
}

HWY_INLINE const float* key_rows(const float* from, const AttentionInputs::Strides& strides, const KeyTile& keys,
                                 std::int64_t key_head) {
  return from + keys.batch * strides[0] + key_head * strides[1] + keys.first * strides[2];
}

}  // namespace
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
