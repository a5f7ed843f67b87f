// Searching a document memory's vectors: rows of MiniLM's 384 dimensions.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <random>

#include "memory/vector_index.h"

namespace {

constexpr std::int64_t dimensions = 384;

std::vector<float> random_vector(std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(dimensions);
  for (float& value : values) value = uniform(random);
  return values;
}

void search(benchmark::State& state) {
  std::mt19937 random(1);
  jerboa::memory::VectorIndex index(dimensions, static_cast<int>(state.range(1)));
  index.reserve(state.range(0));
  for (std::int64_t i = 0; i < state.range(0); ++i) index.add(i, random_vector(random));
  const std::vector<float> query = random_vector(random);
  double best = 1e9;  // the best of several rounds, which other load disturbs least
  for (auto _ : state) {
    const auto begun = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(index.nearest(query, 10));
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  }
  state.counters["best_ms"] = best * 1e3;
}
BENCHMARK(search)
    ->ArgNames({"chunks", "threads"})
    ->Args({10'000, 2})
    ->Args({100'000, 1})
    ->Args({100'000, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
