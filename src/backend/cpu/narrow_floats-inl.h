// Vectors of f32 from 16-bit floats, compiled once per instruction set.

#if defined(JERBOA_CPU_NARROW_FLOATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_NARROW_FLOATS_INL_H
#undef JERBOA_CPU_NARROW_FLOATS_INL_H
#else
#define JERBOA_CPU_NARROW_FLOATS_INL_H
#endif

#include <cstdint>

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
  const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
}

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
