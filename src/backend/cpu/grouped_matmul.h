#pragma once

#include <cstdint>

#include "backend/cpu/compact_weights.h"
#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// Rows in groups, group g from offsets[g] to offsets[g + 1], each with a separate matrix. Offsets do not decrease;
/// they are clamped to the number of rows. All tensors are contiguous.
struct GroupedMatmul {
  std::int64_t groups = 0, rows = 0, inner = 0, columns = 0;
  const std::int32_t* offsets = nullptr;  ///< [groups + 1]
};

/// out [rows, columns] = x [rows, inner] times w [groups, inner, columns], or [groups, columns, inner] if `transposed`.
/// Rows in no group are 0.
void run_matmul_grouped(const GroupedMatmul& grouped, const float* x, const float* w, bool transposed, float* out,
                        ThreadPool& pool);

/// The same for int8 or int4 weights [groups, columns, inner], whose scales are f16, bf16 or f32; as in Matmul, a few
/// rows may be rounded to 8 bits.
void run_matmul_grouped(const GroupedMatmul& grouped, const float* x, const CompactWeights& weights,
                        bool integer_products, float* out, ThreadPool& pool);

/// dw [groups, inner, columns] = x transposed times dy [rows, columns], group by group.
void run_matmul_grouped_weight_grad(const GroupedMatmul& grouped, const float* x, const float* dy, float* dw,
                                    ThreadPool& pool);

}  // namespace jerboa::cpu
