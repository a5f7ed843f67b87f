// Dot products of many rows with one vector, compiled once for each instruction set and chosen at run time.
#include "base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "memory/dot_products.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "memory/dot_products.h"

HWY_BEFORE_NAMESPACE();
namespace jerboa::memory::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Two sums per row hide the latency of an addition; memory is the limit, not arithmetic.
void dot_products_here(const float* rows, std::int64_t count, std::int64_t size, const float* vector, float* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t row = 0; row < count; ++row) {
    const float* values = rows + row * size;
    auto even = hn::Zero(d), odd = hn::Zero(d);
    for (std::int64_t i = 0; i < size; i += 2 * lanes) {
      even = hn::MulAdd(hn::LoadU(d, values + i), hn::LoadU(d, vector + i), even);
      odd = hn::MulAdd(hn::LoadU(d, values + i + lanes), hn::LoadU(d, vector + i + lanes), odd);
    }
    out[row] = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  }
}

}  // namespace
}  // namespace jerboa::memory::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace jerboa::memory {
namespace {

HWY_EXPORT(dot_products_here);

}  // namespace

void dot_products(const float* rows, std::int64_t count, std::int64_t size, const float* vector, float* out) {
  HWY_DYNAMIC_DISPATCH(dot_products_here)(rows, count, size, vector, out);
}

}  // namespace jerboa::memory
#endif
