// Vectors of f32 from 16-bit floats and from 8-bit caches, compiled once per instruction set.

#if defined(JERBOA_CPU_NARROW_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_NARROW_FLOATS_INL_H
#undef JERBOA_CPU_NARROW_FLOATS_INL_H
#else
#define JERBOA_CPU_NARROW_FLOATS_INL_H
#endif

#include <cstdint>

#include <jerboa/base/float16.h>

#include "backend/cpu/packed_rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {

inline HWY_ATTR auto load_bf16(const std::uint16_t* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> wide;
  const hn::Rebind<std::uint16_t, decltype(d)> narrow;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from))));
}

inline HWY_ATTR auto load_f16(const std::uint16_t* from) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // Highway's conversion turns infinity and NaN into finite numbers.
  float values[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) values[i] = f16_to_f32(from[i]);
  return hn::LoadU(d, values);
#else
  const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

// Features from i on of an 8-bit row of `size`; a vector of them has one scale.
inline HWY_ATTR auto load_packed(const std::uint32_t* row, std::int64_t size, std::int64_t i) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  static_assert(features_per_scale % hn::MaxLanes(d) == 0);
  const hn::RebindToSigned<decltype(d)> wide;
  const hn::Rebind<std::int8_t, decltype(d)> narrow;
  const auto bytes = hn::LoadU(narrow, reinterpret_cast<const std::int8_t*>(row) + i);
  return hn::Mul(hn::ConvertTo(d, hn::PromoteTo(wide, bytes)), hn::Set(d, packed_scale(row, size, i)));
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
