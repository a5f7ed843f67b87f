#include "backend/cpu/compact_weights.h"

#include <algorithm>
#include <array>

#include <jerboa/base/float16.h>

#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/compact_weights.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each instruction set.
#include "backend/cpu/narrow_floats-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Integers = hn::RebindToSigned<Floats>;
constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(Floats()));

void expand_bf16(const std::uint16_t* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_bf16(from + i), Floats(), to + i);
  for (; i < count; ++i) to[i] = bf16_to_f32(from[i]);
}

void expand_f16(const std::uint16_t* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(load_f16(from + i), Floats(), to + i);
  for (; i < count; ++i) to[i] = f16_to_f32(from[i]);
}

// Batches of groups that are expanded together.
constexpr std::int64_t groups_at_once = 16;
using Scales = std::array<float, static_cast<std::size_t>(groups_at_once)>;

// Converts scales or minimums to f32.
void floats_from(const std::byte* from, DType dtype, std::int64_t group, std::int64_t count, float* to) {
  const auto* narrow = reinterpret_cast<const std::uint16_t*>(from) + group;
  if (dtype == DType::f16)
    expand_f16(narrow, count, to);
  else if (dtype == DType::bf16)
    expand_bf16(narrow, count, to);
  else
    std::copy_n(reinterpret_cast<const float*>(from) + group, count, to);
}

// Calls expand_group(scale, minimum, first value) for each group.
template <class ExpandGroup>
void for_each_group(const CompactWeights& weights, std::int64_t place, std::int64_t count,
                    const ExpandGroup& expand_group) {
  const std::int64_t groups = count / weight_group;
  for (std::int64_t first = 0; first < groups; first += groups_at_once) {
    const std::int64_t some = std::min(groups_at_once, groups - first);
    Scales scales, mins{};
    floats_from(weights.scales, weights.scale_dtype, place / weight_group + first, some, scales.data());
    if (weights.mins != nullptr)
      floats_from(weights.mins, weights.scale_dtype, place / weight_group + first, some, mins.data());
    for (std::int64_t i = 0; i < some; ++i)
      expand_group(scales[static_cast<std::size_t>(i)], mins[static_cast<std::size_t>(i)], (first + i) * weight_group);
  }
}

void expand_i8(const CompactWeights& weights, std::int64_t place, std::int64_t count, float* to) {
  const auto* from = reinterpret_cast<const std::int8_t*>(weights.values) + place;
  const Floats d;
  const Integers wide;
  const hn::Rebind<std::int8_t, Floats> narrow;
  for_each_group(weights, place, count, [&](float scale, float min, std::int64_t i) HWY_ATTR {
    const auto factor = hn::Set(d, scale), term = hn::Set(d, min);
    for (std::int64_t k = 0; k < weight_group; k += lanes) {
      const auto values = hn::PromoteTo(wide, hn::LoadU(narrow, from + i + k));
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, values), factor, term), d, to + i + k);
    }
  });
}

// Byte j of a group holds value j in its low nibble and value j + 16 in its high nibble.
void expand_i4(const CompactWeights& weights, std::int64_t place, std::int64_t count, float* to) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(weights.values) + place / 2;
  const Floats d;
  const Integers wide;
  const hn::Rebind<std::uint8_t, Floats> narrow;
  constexpr std::int64_t half = weight_group / 2;
  const auto middle = hn::Set(wide, 8);
  for_each_group(weights, place, count, [&](float scale, float min, std::int64_t i) HWY_ATTR {
    const auto factor = hn::Set(d, scale), term = hn::Set(d, min);
    for (std::int64_t k = 0; k < half; k += lanes) {
      const auto both = hn::PromoteTo(wide, hn::LoadU(narrow, from + i / 2 + k));
      const auto low = hn::And(both, hn::Set(wide, 15)), high = hn::ShiftRight<4>(both);
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, hn::Sub(low, middle)), factor, term), d, to + i + k);
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, hn::Sub(high, middle)), factor, term), d, to + i + half + k);
    }
  });
}

void expand(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  const std::int64_t place = row * weights.row + first;
  const auto* halves = reinterpret_cast<const std::uint16_t*>(weights.values) + place;
  switch (weights.dtype) {
    case DType::f16: return expand_f16(halves, count, to);
    case DType::i8: return expand_i8(weights, place, count, to);
    case DType::i4: return expand_i4(weights, place, count, to);
    default: return expand_bf16(halves, count, to);
  }
}

}  // namespace
}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::cpu {

HWY_EXPORT(expand);
HWY_EXPORT(floats_from);

void expand_scales(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(floats_from)
  (weights.scales, weights.scale_dtype, (row * weights.row + first) / weight_group, count / weight_group, to);
}

void expand_mins(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(floats_from)
  (weights.mins, weights.scale_dtype, (row * weights.row + first) / weight_group, count / weight_group, to);
}

void expand_weights(const CompactWeights& weights, std::int64_t row, std::int64_t first, std::int64_t count,
                    float* to) {
  HWY_DYNAMIC_DISPATCH(expand)(weights, row, first, count, to);
}

}  // namespace jerboa::cpu
#endif
