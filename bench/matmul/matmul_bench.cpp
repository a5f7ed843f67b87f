// GFLOP/s of the CPU engine's matrix product: medians and best samples of repeated runs, as a table or as JSON lines.
//   matmul_bench [--threads N] [--seconds S per shape] [--json] [--only TEXT] [--cpu-time]
// --cpu-time measures CPU time instead of wall time: for one thread on a busy machine.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fmt/core.h>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/matmul.h"

namespace {

using namespace jerboa::cpu;

struct Shape {
  const char* name;
  std::int64_t batch, rows, inner, columns;
  bool a_transposed = false, b_transposed = false;
};

constexpr Shape shapes[] = {
    {"512", 1, 512, 512, 512},
    {"1024", 1, 1024, 1024, 1024},
    {"4096x768x3072", 1, 4096, 768, 3072},
    {"gpt qkv", 1, 1024, 256, 768, false, true},
    {"gpt qkv dx", 1, 1024, 768, 256},
    {"gpt qkv dw", 1, 768, 1024, 256, true, false},
    {"gpt proj", 1, 1024, 256, 256, false, true},
    {"gpt up", 1, 1024, 256, 1024, false, true},
    {"gpt down", 1, 1024, 1024, 256, false, true},
    {"gpt down dw", 1, 256, 1024, 1024, true, false},
    {"mlp 1", 1, 128, 784, 512, false, true},
    {"mlp 1 dw", 1, 512, 128, 784, true, false},
    {"mlp 2", 1, 128, 512, 512, false, true},
    {"mlp 2 dx", 1, 128, 512, 512},
    {"mlp 3", 1, 128, 512, 10, false, true},
    {"mlp 3 dx", 1, 128, 10, 512},
    {"mlp 3 dw", 1, 10, 128, 512, true, false},
    {"64 heads qk", 64, 128, 32, 128, false, true},
    {"64 heads pv", 64, 128, 128, 32},
    {"tiny qkv", 1, 512, 64, 192, false, true},
    {"vector [k,n]", 1, 1, 4096, 4096},
    {"vector [n,k]", 1, 1, 4096, 4096, false, true},
    {"4 rows [k,n]", 1, 4, 4096, 4096},
    {"4 rows [n,k]", 1, 4, 4096, 4096, false, true},
    {"8 rows [n,k]", 1, 8, 4096, 4096, false, true},
    {"column", 1, 4096, 4096, 1},
};

bool cpu_time = false;

double seconds_now() {
  if (cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Timing {
  double best, median;
};

template <class Work>
Timing measure(Work&& work, double budget) {
  work();
  const double begin = seconds_now();
  work();
  const auto repeats = std::max(1, static_cast<int>(0.005 / (seconds_now() - begin)));
  std::vector<double> samples;
  const double end = seconds_now() + budget;
  while (samples.size() < 5 || seconds_now() < end) {
    const double start = seconds_now();
    for (int i = 0; i < repeats; ++i) work();
    samples.push_back((seconds_now() - start) / repeats);
  }
  std::sort(samples.begin(), samples.end());
  return {samples.front(), samples[samples.size() / 2]};
}

std::vector<float> random_values(std::int64_t count) {
  std::mt19937 generator(1);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(generator() % 1024) / 512 - 1;
  return values;
}

void report(std::string_view name, const Shape& s, int threads, Timing timing, bool json) {
  const double work = 2e-9 * static_cast<double>(s.batch * s.rows * s.inner * s.columns);
  if (json) {
    fmt::print(
        "{{\"name\": \"{}\", \"batch\": {}, \"rows\": {}, \"inner\": {}, \"columns\": {}, \"a_transposed\": {}, "
        "\"b_transposed\": {}, \"threads\": {}, \"gflops\": {:.2f}, \"median_gflops\": {:.2f}, \"us\": {:.2f}}}\n",
        name, s.batch, s.rows, s.inner, s.columns, s.a_transposed, s.b_transposed, threads, work / timing.best,
        work / timing.median, timing.best * 1e6);
  } else {
    fmt::print("{:16} {:3} x {:4} x {:4} x {:4} {}{}  best {:7.1f}  median {:7.1f} GFLOP/s  {:9.1f} us\n", name,
               s.batch, s.rows, s.inner, s.columns, s.a_transposed ? 't' : ' ', s.b_transposed ? 't' : ' ',
               work / timing.best, work / timing.median, timing.best * 1e6);
  }
  std::fflush(stdout);
}

Timing measure_shape(const Shape& s, ThreadPool& pool, double budget) {
  const auto a = random_values(s.batch * s.rows * s.inner), b = random_values(s.batch * s.inner * s.columns);
  std::vector<float> c(static_cast<std::size_t>(s.batch * s.rows * s.columns));
  Matmul m;
  m.rows = s.rows, m.columns = s.columns, m.inner = s.inner;
  m.a = a.data(), m.a_row = s.a_transposed ? 1 : s.inner, m.a_inner = s.a_transposed ? s.rows : 1;
  m.b = b.data(), m.b_inner = s.b_transposed ? 1 : s.columns, m.b_column = s.b_transposed ? s.inner : 1;
  m.c = c.data(), m.c_row = s.columns;
  for (std::int64_t i = 0; s.batch > 1 && i < s.batch; ++i) {
    m.a_offsets.push_back(i * s.rows * s.inner);
    m.b_offsets.push_back(i * s.inner * s.columns);
    m.c_offsets.push_back(i * s.rows * s.columns);
  }
  return measure([&] { run_matmul(m, pool); }, budget);
}

Timing measure_small(const Shape& s, double budget) {
  const auto a = random_values(s.rows * s.inner), b = random_values(s.inner * s.columns);
  std::vector<float> c(static_cast<std::size_t>(s.rows * s.columns)), scratch;
  const SmallMatmul m{.rows = s.rows,
                      .columns = s.columns,
                      .inner = s.inner,
                      .a = a.data(),
                      .a_row = s.a_transposed ? 1 : s.inner,
                      .a_inner = s.a_transposed ? s.rows : 1,
                      .b = b.data(),
                      .b_inner = s.b_transposed ? 1 : s.columns,
                      .b_column = s.b_transposed ? s.inner : 1,
                      .c = c.data(),
                      .c_row = s.columns};
  return measure([&] { run_small_matmul(m, scratch); }, budget);
}

}  // namespace

int main(int count, char** arguments) {
  int threads = 0;
  double budget = 0.5;
  bool json = false;
  std::string only;
  for (int i = 1; i < count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "--json") {
      json = true;
    } else if (option == "--cpu-time") {
      cpu_time = true;
    } else if (option == "--threads" && i + 1 < count) {
      threads = std::atoi(arguments[++i]);
    } else if (option == "--seconds" && i + 1 < count) {
      budget = std::atof(arguments[++i]);
    } else if (option == "--only" && i + 1 < count) {
      only = arguments[++i];
    } else {
      fmt::print(stderr, "usage: matmul_bench [--threads N] [--seconds S] [--json] [--only TEXT]\n");
      return 2;
    }
  }
  const auto wanted = [&](const Shape& s) { return std::string_view(s.name).find(only) != std::string_view::npos; };
  ThreadPool pool(threads);
  for (const Shape& s : shapes) {
    if (wanted(s)) report(s.name, s, pool.size(), measure_shape(s, pool, budget), json);
  }
  const Shape small[] = {{"small", 1, 64, 32, 64},
                         {"small at", 1, 64, 32, 64, true, false},
                         {"small bt", 1, 64, 32, 64, false, true},
                         {"small pv", 1, 64, 64, 32}};
  for (const Shape& s : small) {
    if (wanted(s)) report(s.name, s, 1, measure_small(s, budget), json);
  }
}
