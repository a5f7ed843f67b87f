// Vectors of f32 from 16-bit floats, compiled once per instruction set.

#if defined(JERBOA_CPU_NARROW_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_NARROW_FLOATS_INL_H
#undef JERBOA_CPU_NARROW_FLOATS_INL_H
#else
#define JERBOA_CPU_NARROW_FLOATS_INL_H
#endif

#include <cstdint>

#include <jerboa/base/float16.h>

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
  // Highway's converts infinity and NaN to finite numbers.
  float values[hn::MaxLanes(d)];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) values[i] = f16_to_f32(from[i]);
  return hn::LoadU(d, values);
#else
  const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
