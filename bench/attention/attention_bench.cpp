// Times attention and its gradient: attention_bench [threads]. FLOPs are those of the products that causal attention
// needs, 2 forward and 5 backward; a separate matmul is timed for comparison.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fmt/core.h>
#include <functional>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/matmul.h"

namespace {

using namespace jerboa::cpu;

// The best of repeated runs: other load on the machine only adds time.
double best_seconds(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  const auto start = Clock::now();
  while (times.size() < 5 || (std::chrono::duration<double>(Clock::now() - start).count() < 1 && times.size() < 1000)) {
    const auto before = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - before).count());
  }
  return *std::min_element(times.begin(), times.end());
}

std::vector<float> numbers(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8U) / static_cast<float>(1U << 24U) - 0.5F;
  }
  return values;
}

struct Setting {
  const char* name;
  std::int64_t batch, heads, key_heads, time, keys, size;
  bool backward;
};

// Everything is [batch, time, heads, size] in memory, as projections leave it, except the keys and values of decoding:
// those come from a cache, [batch, heads, time, size].
void measure(const Setting& s, ThreadPool& pool) {
  const std::int64_t queries = s.batch * s.time * s.heads * s.size, keys = s.batch * s.keys * s.key_heads * s.size;
  const auto q = numbers(queries), k = numbers(keys), v = numbers(keys), dout = numbers(queries);
  std::vector<float> out(q.size()), lse(static_cast<std::size_t>(s.batch * s.heads * s.time));
  std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());
  const AttentionInputs::Strides of_queries{s.time * s.heads * s.size, s.size, s.heads * s.size};
  AttentionInputs::Strides of_keys{s.keys * s.key_heads * s.size, s.size, s.key_heads * s.size};
  if (s.time == 1) of_keys = {s.keys * s.key_heads * s.size, s.keys * s.size, s.size};
  const auto fill = [&](AttentionInputs& a) {
    a.batch = s.batch, a.heads = s.heads, a.key_heads = s.key_heads, a.time = s.time, a.keys = s.keys;
    a.size = a.value_size = s.size;
    a.q = q.data(), a.k = k.data(), a.v = v.data();
    a.q_strides = of_queries, a.k_strides = a.v_strides = of_keys;
    a.causal = true;
  };
  AttentionProblem forward;
  fill(forward);
  forward.out = out.data(), forward.out_strides = of_queries, forward.lse = lse.data();
  AttentionGradProblem backward;
  fill(backward);
  backward.out = out.data(), backward.dout = dout.data(), backward.lse = lse.data();
  backward.out_strides = backward.dout_strides = backward.dq_strides = of_queries;
  backward.dq = dq.data(), backward.dk = dk.data(), backward.dv = dv.data();
  backward.dk_strides = backward.dv_strides = of_keys;
  const double seen = s.time == 1 ? static_cast<double>(s.keys) : static_cast<double>(s.time * (s.time + 1)) / 2;
  const double product = 2.0 * static_cast<double>(s.batch * s.heads * s.size) * seen;
  const double there = best_seconds([&] { run_attention(forward, pool); });
  fmt::print("{:32} forward  {:9.3f} ms {:7.1f} GFLOP/s", s.name, there * 1e3, 2 * product / there / 1e9);
  if (!s.backward) {
    fmt::print("  {:.1f} GB/s of keys and values\n", 8.0 * static_cast<double>(keys) / there / 1e9);
    return;
  }
  const double back = best_seconds([&] { run_attention_grad(backward, pool); });
  fmt::print("   backward {:9.3f} ms {:7.1f} GFLOP/s\n", back * 1e3, 5 * product / back / 1e9);
}

void measure_matmul(std::int64_t size, ThreadPool& pool) {
  const auto a = numbers(size * size), b = numbers(size * size);
  std::vector<float> c(a.size());
  Matmul matmul;
  matmul.rows = matmul.columns = matmul.inner = size;
  matmul.a = a.data(), matmul.a_row = size, matmul.a_inner = 1;
  matmul.b = b.data(), matmul.b_inner = size, matmul.b_column = 1;
  matmul.c = c.data(), matmul.c_row = size;
  const double seconds = best_seconds([&] { run_matmul(matmul, pool); });
  const auto n = static_cast<double>(size);
  fmt::print("matmul {:<25} {:18.3f} ms {:7.1f} GFLOP/s\n", size, seconds * 1e3, 2 * n * n * n / seconds / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  ThreadPool pool(argc > 1 ? std::atoi(argv[1]) : 0);
  measure_matmul(1024, pool);
  measure({"B8 H8 T128 D32", 8, 8, 8, 128, 128, 32, true}, pool);
  measure({"B8 H12 T1024 D64", 8, 12, 12, 1024, 1024, 64, true}, pool);
  measure({"B1 H32/8 T512 D128", 1, 32, 8, 512, 512, 128, true}, pool);
  measure({"B16 H4 T32 D16", 16, 4, 4, 32, 32, 16, true}, pool);
  measure({"decode H16/8 K2048 D128", 1, 16, 8, 1, 2048, 128, false}, pool);
  measure({"decode H12 K512 D64", 1, 12, 12, 1, 512, 64, false}, pool);
}
