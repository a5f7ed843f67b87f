#include "backend/cpu/grouped_matmul.h"

#include <algorithm>

#include "backend/cpu/matmul.h"

namespace jerboa::cpu {
namespace {

std::int64_t begin_of(const GroupedMatmul& grouped, std::int64_t g) {
  return std::clamp<std::int64_t>(grouped.offsets[g], 0, grouped.rows);
}

std::int64_t end_of(const GroupedMatmul& grouped, std::int64_t g) {
  return std::clamp<std::int64_t>(grouped.offsets[g + 1], begin_of(grouped, g), grouped.rows);
}

// Multiplies each group's rows; `set_matrix(g, matmul)` sets the matrix.
template <class SetMatrix>
void multiply_groups(const GroupedMatmul& grouped, const float* x, float* out, ThreadPool& pool,
                     const SetMatrix& set_matrix) {
  std::int64_t next = 0;  // rows before it are written
  for (std::int64_t g = 0; g < grouped.groups; ++g) {
    const std::int64_t begin = begin_of(grouped, g), end = end_of(grouped, g);
    if (begin > next) std::fill(out + next * grouped.columns, out + begin * grouped.columns, 0.0F);
    next = std::max(next, end);
    if (begin == end) continue;
    Matmul matmul;
    matmul.rows = end - begin, matmul.columns = grouped.columns, matmul.inner = grouped.inner;
    matmul.a = x + begin * grouped.inner, matmul.a_row = grouped.inner, matmul.a_inner = 1;
    matmul.c = out + begin * grouped.columns, matmul.c_row = grouped.columns;
    set_matrix(g, matmul);
    run_matmul(matmul, pool);
  }
  std::fill(out + next * grouped.columns, out + grouped.rows * grouped.columns, 0.0F);
}

}  // namespace

void run_matmul_grouped(const GroupedMatmul& grouped, const float* x, const float* w, bool transposed, float* out,
                        ThreadPool& pool) {
  multiply_groups(grouped, x, out, pool, [&](std::int64_t g, Matmul& matmul) {
    matmul.b = w + g * grouped.inner * grouped.columns;
    matmul.b_inner = transposed ? 1 : grouped.columns, matmul.b_column = transposed ? grouped.inner : 1;
  });
}

void run_matmul_grouped(const GroupedMatmul& grouped, const float* x, const CompactWeights& weights,
                        bool integer_products, float* out, ThreadPool& pool) {
  const std::int64_t elements = grouped.inner * grouped.columns;
  const std::int64_t scale_bytes = elements / weight_group * bits(weights.scale_dtype) / 8;
  CompactWeights of_group = weights;
  multiply_groups(grouped, x, out, pool, [&](std::int64_t g, Matmul& matmul) {
    of_group.values = weights.values + g * elements * bits(weights.dtype) / 8;
    of_group.scales = weights.scales + g * scale_bytes;
    if (weights.mins != nullptr) of_group.mins = weights.mins + g * scale_bytes;
    matmul.weights = &of_group;
    matmul.integer_products = integer_products;
  });
}

void run_matmul_grouped_weight_grad(const GroupedMatmul& grouped, const float* x, const float* dy, float* dw,
                                    ThreadPool& pool) {
  for (std::int64_t g = 0; g < grouped.groups; ++g) {
    const std::int64_t begin = begin_of(grouped, g), end = end_of(grouped, g);
    float* to = dw + g * grouped.inner * grouped.columns;
    if (begin == end) {
      std::fill_n(to, grouped.inner * grouped.columns, 0.0F);
      continue;
    }
    Matmul matmul;
    matmul.rows = grouped.inner, matmul.columns = grouped.columns, matmul.inner = end - begin;
    matmul.a = x + begin * grouped.inner, matmul.a_row = 1, matmul.a_inner = grouped.inner;
    matmul.b = dy + begin * grouped.columns, matmul.b_inner = grouped.columns, matmul.b_column = 1;
    matmul.c = to, matmul.c_row = grouped.columns;
    run_matmul(matmul, pool);
  }
}

}  // namespace jerboa::cpu
