#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "backend/cpu/matmul_tasks.h"
#include "backend/cpu/rounded_rows.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/simd_targets.h"
// After simd_targets.h:
#include <hwy/base.h>
#include <hwy/detect_targets.h>

#if HWY_ARCH_X86
#include <immintrin.h>

namespace jerboa::cpu {
namespace {

constexpr int most_rows = 12;

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c")
namespace avx2 {
#define JERBOA_VNNI 0
#include "backend/cpu/matmul_bytes-inl.h"
#undef JERBOA_VNNI
}  // namespace avx2
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")
namespace vnni {
#define JERBOA_VNNI 1
#include "backend/cpu/matmul_bytes-inl.h"
#undef JERBOA_VNNI
}  // namespace vnni
HWY_POP_ATTRIBUTES

struct Functions {
  void (*round_row)(const float* from, std::int64_t row, bool nibbles, const RoundedRows& to) = nullptr;
  const avx2::ColumnsFunction *of_bytes = nullptr, *of_nibbles = nullptr;
};

Functions choose_functions(std::int64_t target) {
  if (target == HWY_AVX3 && __builtin_cpu_supports("avx512vnni"))
    return {&vnni::round_row, vnni::columns_functions<false>.data(), vnni::columns_functions<true>.data()};
  if (target == HWY_AVX2 || target == HWY_AVX3)
    return {&avx2::round_row, avx2::columns_functions<false>.data(), avx2::columns_functions<true>.data()};
  return {};
}

// Memory for rounded rows, in one piece.
RoundedRows rounded_rows_in(Scratch<std::byte>& scratch, std::int64_t rows, std::int64_t groups) {
  const std::int64_t count = rows * groups;
  std::byte* next = scratch.get(count * (32 + 32 + 3 * 4));
  const auto take = [&](std::int64_t bytes) { return std::exchange(next, next + bytes); };
  RoundedRows result{.rows = rows, .groups = groups};
  result.values = reinterpret_cast<std::int8_t*>(take(count * 32));
  result.starts = reinterpret_cast<std::int32_t*>(take(count * 32));
  result.scales = reinterpret_cast<float*>(take(count * 4));
  result.sums = reinterpret_cast<float*>(take(count * 4));
  result.rounded_sums = reinterpret_cast<float*>(take(count * 4));
  return result;
}

thread_local Scratch<std::byte> rounded;  // of the thread that asked for the product
thread_local Scratch<float> results;      // of the thread that computes some columns

}  // namespace

bool run_matmul_in_integers(const Matmul& m, ThreadPool& pool, std::int64_t target) {
  if (!m.integer_products || m.weights == nullptr || m.weights->scales == nullptr) return false;
  if (m.rows > most_rows || m.inner == 0 || m.a_inner != 1 || m.a_prologue != nullptr) return false;
  if (m.weights->scale_dtype != DType::f16 || batch_size(m) != 1) return false;
  const Functions functions = choose_functions(target);
  if (functions.round_row == nullptr) return false;
  const bool nibbles = m.weights->dtype == DType::i4;
  const RoundedRows a = rounded_rows_in(rounded, m.rows, m.inner / weight_group);
  for (std::int64_t row = 0; row < m.rows; ++row)
    functions.round_row(m.a + offset_of(m.a_offsets, 0) + row * m.a_row, row, nibbles, a);
  struct Job {
    const Matmul& matmul;
    const RoundedRows& a;
    ColumnTasks tasks;
    avx2::ColumnsFunction multiply;
  } job{m, a, column_tasks(m.columns, m.inner, 8), (nibbles ? functions.of_nibbles : functions.of_bytes)[m.rows - 1]};
  pool.run(job.tasks.count, [&job](std::int64_t task, int worker) {
    const std::int64_t column = task * job.tasks.columns_per_task;
    const std::int64_t columns = std::min(job.tasks.columns_per_task, job.matmul.columns - column);
    float* tile = results.get(job.matmul.rows * columns + epilogue_padding);
    job.multiply(job.a, *job.matmul.weights, column, columns, tile, columns);
    finish(job.matmul, 0, 0, job.matmul.rows, column, columns, tile, columns, worker);
  });
  return true;
}

}  // namespace jerboa::cpu

#else
namespace jerboa::cpu {
bool run_matmul_in_integers(const Matmul&, ThreadPool&, std::int64_t) { return false; }
}  // namespace jerboa::cpu
#endif
