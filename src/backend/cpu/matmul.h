#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/compact_weights.h"
#include "backend/cpu/thread_pool.h"

namespace jerboa::cpu {

/// The processing of a finished tile of the product while it is still in the cache: bias, activation, residual, and the
/// final stores.
class MatmulEpilogue {
 public:
  virtual ~MatmulEpilogue() = default;
  /// Called some time before the tile is finished, to prefetch its inputs into the cache.
  virtual void prepare(std::int64_t /*batch*/, std::int64_t /*row*/, std::int64_t /*rows*/, std::int64_t /*column*/,
                       std::int64_t /*columns*/) {}
  /// The rows × columns values at (row, column) of product `batch` are in `tile`, with a row stride of `tile_stride`.
  virtual void apply(std::int64_t batch, std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                     const float* tile, std::int64_t tile_stride, int worker) = 0;
};

/// Applied to an operand's elements as they are read.
class MatmulPrologue {
 public:
  virtual ~MatmulPrologue() = default;
  virtual void apply(float* values, std::int64_t count, int worker) = 0;
};

/// c[i, j] = sum over k of a[i, k] * b[k, j], for each of a batch. Strides are in elements and may be anything: a
/// transposed operand is one with exchanged strides.
struct Matmul {
  std::int64_t rows = 0, columns = 0, inner = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_inner = 0;
  const float* b = nullptr;
  std::int64_t b_inner = 0, b_column = 0;
  const CompactWeights* weights = nullptr;  ///< instead of b, whose columns are the rows of the weights
  bool integer_products = false;            ///< a few rows may be rounded to 8 bits if the weights are int8 or int4
  float* c = nullptr;                       ///< not written if there is an epilogue
  std::int64_t c_row = 0, c_column = 1;
  /// Offsets of each product of the batch; empty: a single product.
  std::vector<std::int64_t> a_offsets = {}, b_offsets = {}, c_offsets = {};
  MatmulPrologue* a_prologue = nullptr;
  MatmulPrologue* b_prologue = nullptr;
  MatmulEpilogue* epilogue = nullptr;
};

/// Runs it on the pool. The order of accumulation depends only on the sizes.
void run_matmul(const Matmul& matmul, ThreadPool& pool);

/// A small product on the calling thread, for kernels that do their own tiling:
/// c[i, j] = (accumulate ? c[i, j] : 0) + scale * sum over k of a[i, k] * b[k, j].
struct SmallMatmul {
  std::int64_t rows = 0, columns = 0, inner = 0;
  const float* a = nullptr;
  std::int64_t a_row = 0, a_inner = 0;
  const float* b = nullptr;
  std::int64_t b_inner = 0, b_column = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;  ///< columns are contiguous
  float scale = 1;
  bool accumulate = false;
};
void run_small_matmul(const SmallMatmul& matmul, std::vector<float>& scratch);

}  // namespace jerboa::cpu
