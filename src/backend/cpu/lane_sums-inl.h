// The sums of the lanes of four vectors: computing them together takes a third of the work of one at a time.

#if defined(JERBOA_CPU_LANE_SUMS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef JERBOA_CPU_LANE_SUMS_INL_H
#undef JERBOA_CPU_LANE_SUMS_INL_H
#else
#define JERBOA_CPU_LANE_SUMS_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
template <class D>
HWY_INLINE auto sum_of_blocks(D d, hwy::HWY_NAMESPACE::Vec<D> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_of_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// For vectors of floats: four sums in a vector of 128 bits.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE auto sums_of_lanes(D d, V a, V b, V c, V e) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> pairs;
  const auto ab = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const V lower = hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce));
  const V upper = hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce));
  return sum_of_blocks(d, hn::Add(lower, upper));
}
#endif

}  // namespace jerboa::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
