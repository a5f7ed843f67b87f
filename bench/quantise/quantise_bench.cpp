// Quantising weights on one thread, with and without the machine's vector instructions. Items are weights.
#include <benchmark/benchmark.h>
#include <cmath>
#include <vector>

#include <jerboa/base/random.h>

#include "models/round_for_products.h"

namespace {

using namespace jerboa;

constexpr std::int64_t rows = 256, columns = 4096;

// Normally distributed, like real weights.
std::vector<float> weights() {
  std::vector<float> values(rows * columns);
  SplitMix random(1);
  for (float& value : values)
    value = static_cast<float>(0.02 * std::sqrt(-2 * std::log(1 - random.uniform())) *
                               std::cos(6.283185307 * random.uniform()));
  return values;
}

using Quantise = void (*)(std::span<const float> values, std::int64_t first_group, const models::GroupWriter& writer);

void quantise(benchmark::State& state, Quantise quantise_values, DType dtype) {
  const std::vector<float> values = weights();
  models::Quantised quantised({rows, columns}, dtype);
  const models::GroupWriter writer(quantised.view(), 0);
  for (auto _ : state) {
    quantise_values(values, 0, writer);
    benchmark::DoNotOptimize(quantised.weight.bytes().data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * rows * columns);
}

BENCHMARK_CAPTURE(quantise, int4, models::quantise_groups, DType::i4)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, int4_one_by_one, models::quantise_one_by_one, DType::i4)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, int8, models::quantise_groups, DType::i8)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, int8_one_by_one, models::quantise_one_by_one, DType::i8)->Unit(benchmark::kMillisecond);

}  // namespace
