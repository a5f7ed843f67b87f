#include "steps/sampling_graph.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/ops/ops.h>

// Sampling on a device compared with the host's Sampler.
namespace jerboa::language::sampling_graph_test {
namespace {

struct Draws {
  std::vector<SamplerOptions> settings;  // of each row
  std::vector<std::uint32_t> first;      // the number of each row's first draw
  std::vector<std::uint32_t> mask = {};
  int outputs = 1;
};

// Draws on the device from logits [rows, outputs, vocabulary].
class DeviceSampler {
 public:
  DeviceSampler(int rows, int outputs, int vocabulary, Drawing drawing, bool masked, bool as_gpu = false)
      : shape_{rows, outputs, vocabulary}, drawing_(drawing), session_(Device::cpu(2)) {
    const auto graph = trace([&] {
      const Tensor logits = tensor_input("logits", {rows, outputs, vocabulary});
      output("tokens", draw_tokens(logits, drawing, masked, as_gpu));
    });
    session_.add_entry("draw", graph);
  }

  std::vector<std::int32_t> operator()(const std::vector<float>& logits, const Draws& draws) {
    const std::int64_t rows = shape_[0], outputs = shape_[1];
    TensorMap inputs{{"logits", HostTensor(shape_, std::span<const float>(logits))}};
    if (drawing_ == Drawing::sampled) {
      HostTensor temperature(DType::f32, {rows}), top_p = temperature, min_p = temperature, top_k(DType::i32, {rows}),
                                                  seed(DType::u32, {rows, 2}), draw(DType::u32, {rows, outputs});
      for (std::int64_t row = 0; row < rows; ++row) {
        const SamplerOptions& options = draws.settings[static_cast<std::size_t>(row)];
        temperature.set_number(row, options.temperature);
        top_p.f32()[static_cast<std::size_t>(row)] = options.top_p;
        min_p.f32()[static_cast<std::size_t>(row)] = options.min_p;
        top_k.set_number(row, options.top_k);
        seed.as<std::uint32_t>()[static_cast<std::size_t>(2 * row)] = static_cast<std::uint32_t>(options.seed);
        seed.as<std::uint32_t>()[static_cast<std::size_t>(2 * row + 1)] =
            static_cast<std::uint32_t>(options.seed >> 32);
        for (std::int64_t i = 0; i < outputs; ++i)
          draw.set_number(row * outputs + i, draws.first[static_cast<std::size_t>(row)] + static_cast<double>(i));
      }
      inputs.insert({{"temperature", temperature},
                     {"top_p", top_p},
                     {"min_p", min_p},
                     {"top_k", top_k},
                     {"seed", seed},
                     {"draw", draw}});
    }
    if (!draws.mask.empty()) {
      HostTensor mask(DType::u32, {rows, std::ssize(draws.mask) / rows});
      std::copy(draws.mask.begin(), draws.mask.end(), mask.as<std::uint32_t>().begin());
      inputs.emplace("mask", mask);
    }
    const HostTensor tokens = session_.run("draw", inputs).get("tokens");
    return {tokens.i32().begin(), tokens.i32().end()};
  }

 private:
  Sizes shape_;
  Drawing drawing_;
  Session session_;
};

std::vector<float> random_logits(std::size_t count, std::uint64_t seed, double spread) {
  SplitMix random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += random.uniform() - 0.5;
    logit = static_cast<float>(sum * spread);
  }
  return logits;
}

// The token that the host draws as number `draw` and the distance of that draw from the nearest boundary between two
// tokens, in probability.
struct HostDraw {
  int token;
  double distance;
};
HostDraw host_draw(std::span<const float> logits, const SamplerOptions& options, std::uint64_t draw) {
  const auto token_at = [&](double uniform) {
    // The sampler with a random number of our own: the seed whose first number is closest is not known, so the draw is
    // repeated here from the definition.
    std::vector<std::pair<float, int>> order;
    for (std::size_t i = 0; i < logits.size(); ++i) order.emplace_back(-logits[i], static_cast<int>(i));
    std::sort(order.begin(), order.end());
    if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
    std::vector<std::pair<int, double>> kept;
    double sum = 0;
    for (const auto& [negative, token] : order) {
      kept.emplace_back(token, std::exp((static_cast<double>(-negative) + order.front().first) / options.temperature));
      sum += kept.back().second;
    }
    double reached = 0;
    std::size_t count = 0;
    while (count < kept.size() && (options.top_p >= 1 || reached < options.top_p))
      reached += kept[count++].second / sum;
    kept.resize(std::max<std::size_t>(count, 1));
    std::erase_if(kept, [&](const auto& each) { return each.second < static_cast<double>(options.min_p); });
    std::sort(kept.begin(), kept.end());
    sum = 0;
    for (const auto& each : kept) sum += each.second;
    double left = uniform * sum;
    for (const auto& [token, probability] : kept) {
      left -= probability;
      if (left < 0) return token;
    }
    return kept.back().first;
  };
  const double uniform = CounterRandom(options.seed, draw).uniform();
  const int token = token_at(uniform);
  double distance = 1e-4;
  if (token_at(std::max(0.0, uniform - 1e-4)) != token || token_at(std::min(1 - 1e-12, uniform + 1e-4)) != token)
    distance = 0;
  return {token, distance};
}

TEST(SamplingGraph, DrawsTheNumbersOfCounterRandom) {
  const std::vector<std::uint64_t> seeds{0, 1, 0xffffffffu, 0x123456789abcdef0u, ~std::uint64_t{0}};
  const auto rows = std::ssize(seeds);
  const auto graph = trace([&] {
    const Tensor seed = tensor_input("seed", {rows, 2}, DType::u32);
    output("uniform", uniform_draws(seed, tensor_input("draw", {rows, 3}, DType::u32)));
  });
  Session session(Device::cpu(1));
  session.add_entry("run", graph);
  HostTensor seed(DType::u32, {rows, 2}), draw(DType::u32, {rows, 3});
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    seed.as<std::uint32_t>()[2 * i] = static_cast<std::uint32_t>(seeds[i]);
    seed.as<std::uint32_t>()[2 * i + 1] = static_cast<std::uint32_t>(seeds[i] >> 32);
    for (std::size_t j = 0; j < 3; ++j) draw.as<std::uint32_t>()[3 * i + j] = static_cast<std::uint32_t>(1000 * i + j);
  }
  const HostTensor found = session.run("run", {{"seed", seed}, {"draw", draw}}).get("uniform");
  for (std::size_t i = 0; i < seeds.size(); ++i)
    for (std::size_t j = 0; j < 3; ++j)
      EXPECT_NEAR(found.f32()[3 * i + j], CounterRandom(seeds[i], 1000 * i + j).uniform(), 0x1p-23) << i << ' ' << j;
}

TEST(SamplingGraph, TakesTheFirstOfTheLikeliest) {
  for (const int vocabulary : {1, 5, 512, 513, 2000}) {
    DeviceSampler greedy(2, 1, vocabulary, Drawing::greedy, false);
    std::vector<float> logits = random_logits(static_cast<std::size_t>(2 * vocabulary), 3, 4);
    const auto best = static_cast<std::size_t>(vocabulary * 3 / 4);
    logits[best] = 50;
    if (vocabulary > 1) logits[static_cast<std::size_t>(vocabulary) - 1] = 50;  // a tie: the first is taken
    std::vector<float> second(logits.begin() + vocabulary, logits.end());
    const auto wanted = std::max_element(second.begin(), second.end()) - second.begin();
    EXPECT_EQ(greedy(logits, {}),
              (std::vector<std::int32_t>{static_cast<std::int32_t>(best), static_cast<int>(wanted)}))
        << vocabulary;
  }
}

const std::vector<SamplerOptions> varied{
    {.temperature = 1},
    {.temperature = 0},
    {.temperature = 0.7f, .top_k = 1},
    {.temperature = 0.7f, .top_k = 40},
    {.temperature = 1.3f, .top_p = 0.9f},
    {.temperature = 0.9f, .top_p = 0.1f},
    {.temperature = 1, .min_p = 0.05f},
    {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.02f},
    {.temperature = 2, .top_k = 300, .top_p = 0.5f},
    {.temperature = 0.01f, .top_p = 0.99f},
    {.temperature = 1, .top_k = 100000},
    {.temperature = 5, .top_p = 0.999f},
};

// Every row has settings of its own; one program serves them all.
void compare_with_host(int vocabulary, bool as_gpu, int rounds) {
  const int rows = static_cast<int>(varied.size());
  DeviceSampler device(rows, 1, vocabulary, Drawing::sampled, false, as_gpu);
  int close = 0, all = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto count = static_cast<std::size_t>(vocabulary);
    const auto logits = random_logits(count * static_cast<std::size_t>(rows), static_cast<std::uint64_t>(round) + 17,
                                      round % 3 * 6 + 2);
    Draws draws{varied, std::vector<std::uint32_t>(static_cast<std::size_t>(rows), static_cast<std::uint32_t>(round))};
    for (std::size_t row = 0; row < varied.size(); ++row)
      draws.settings[row].seed = 77 * row + (std::uint64_t{row} << 40);
    const auto tokens = device(logits, draws);
    for (std::size_t row = 0; row < varied.size(); ++row) {
      const auto own = std::span(logits).subspan(row * count, count);
      const SamplerOptions& options = draws.settings[row];
      ++all;
      if (options.temperature == 0) {
        EXPECT_EQ(tokens[row], std::max_element(own.begin(), own.end()) - own.begin());
        continue;
      }
      const HostDraw host = host_draw(own, options, static_cast<std::uint64_t>(round));
      if (host.distance == 0)
        ++close;
      else
        EXPECT_EQ(tokens[row], host.token) << fmt::format("{} tokens, row {}, round {}", vocabulary, row, round);
    }
  }
  EXPECT_LT(close, all / 4) << "too many draws near a boundary to say much";
}

TEST(SamplingGraph, DrawsWhatTheHostDraws) {
  compare_with_host(300, false, 60);
  compare_with_host(3001, false, 10);
}

TEST(SamplingGraph, DrawsTheSameWithTheStepsOfAGpu) { compare_with_host(1000, true, 20); }

// The definition in this test is the Sampler's own.
TEST(SamplingGraph, ComparesWithTheSampler) {
  for (const SamplerOptions& options : varied) {
    if (options.temperature == 0) continue;
    SamplerOptions seeded = options;
    seeded.seed = 5;
    Sampler sampler(seeded);
    for (std::uint64_t draw = 0; draw < 20; ++draw) {
      std::vector<float> logits = random_logits(500, draw, 9);
      const HostDraw expected = host_draw(logits, seeded, draw);
      EXPECT_EQ(sampler.sample(logits), expected.token);
    }
  }
}

// Of equal logits at the edge of top-k and top-p the first are kept, as on the host.
TEST(SamplingGraph, KeepsTheFirstOfEqualTokens) {
  const int vocabulary = 1100;
  const std::vector<SamplerOptions> settings{
      {.top_k = 5}, {.top_p = 0.004f}, {.top_k = 10, .top_p = 0.5f}, {.top_k = 1}};
  DeviceSampler device(4, 1, vocabulary, Drawing::sampled, false);
  std::vector<std::set<int>> seen(settings.size());
  for (std::uint32_t draw = 0; draw < 200; ++draw) {
    const auto tokens = device(std::vector<float>(4 * vocabulary, 1.5f), {settings, {draw, draw, draw, draw}});
    for (std::size_t row = 0; row < settings.size(); ++row) seen[row].insert(tokens[row]);
  }
  EXPECT_EQ(seen[0], (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen[1], (std::set<int>{0, 1, 2, 3, 4}));  // five of 1100 reach 0.4 %
  EXPECT_EQ(seen[2], (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen[3], (std::set<int>{0}));
}

TEST(SamplingGraph, DrawsOnlyWhatTheMaskAllows) {
  const int vocabulary = 1030, words = (vocabulary + 31) / 32;
  for (const Drawing drawing : {Drawing::greedy, Drawing::sampled}) {
    DeviceSampler device(2, 1, vocabulary, drawing, true);
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(2 * words));
    for (const int token : {3, 64, 1029}) mask[static_cast<std::size_t>(token / 32)] |= 1u << (token % 32);
    for (int token = 0; token < vocabulary; ++token)
      mask[static_cast<std::size_t>(words + token / 32)] |= 1u << (token % 32);
    std::set<int> first, second;
    for (std::uint32_t draw = 0; draw < 100; ++draw) {
      const auto tokens = device(random_logits(static_cast<std::size_t>(2 * vocabulary), draw, 2),
                                 {{{.temperature = 3}, {.temperature = 3}}, {draw, draw}, mask});
      first.insert(tokens[0]);
      second.insert(tokens[1]);
    }
    EXPECT_EQ(first, (std::set<int>{3, 64, 1029}));
    EXPECT_GT(second.size(), 50u);
  }
}

// Rows with drafts draw one token after each, with numbers of their own.
TEST(SamplingGraph, DrawsOneTokenForEachOutput) {
  const int vocabulary = 40;
  DeviceSampler whole(2, 3, vocabulary, Drawing::sampled, false), single(1, 1, vocabulary, Drawing::sampled, false);
  const auto logits = random_logits(6 * vocabulary, 1, 5);
  const std::vector<SamplerOptions> settings{{.top_k = 9, .seed = 4}, {.temperature = 0.5f, .seed = 9}};
  const auto tokens = whole(logits, {settings, {10, 20}});
  for (std::size_t row = 0; row < 2; ++row)
    for (std::size_t i = 0; i < 3; ++i) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>((3 * row + i) * vocabulary);
      const auto alone =
          single({begin, begin + vocabulary}, {{settings[row]}, {static_cast<std::uint32_t>(10 * (row + 1) + i)}});
      EXPECT_EQ(tokens[3 * row + i], alone[0]) << row << ' ' << i;
    }
}

// Pearson's statistic over 100,000 draws: below the 99.9th percentile for its 19 degrees of freedom.
TEST(SamplingGraph, DrawsByTheDistribution) {
  const int vocabulary = 20, rows = 1000, rounds = 100;
  DeviceSampler device(rows, 1, vocabulary, Drawing::sampled, false);
  const std::vector<float> one = random_logits(vocabulary, 8, 3);
  std::vector<float> logits;
  for (int row = 0; row < rows; ++row) logits.insert(logits.end(), one.begin(), one.end());
  Draws draws{std::vector<SamplerOptions>(rows, SamplerOptions{.temperature = 1.2f}), std::vector<std::uint32_t>(rows)};
  for (std::size_t row = 0; row < rows; ++row) draws.settings[row].seed = row;
  std::vector<double> counts(vocabulary);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::fill(draws.first.begin(), draws.first.end(), round);
    for (const std::int32_t token : device(logits, draws)) ++counts[static_cast<std::size_t>(token)];
  }
  double sum = 0, statistic = 0;
  for (const float logit : one) sum += std::exp(static_cast<double>(logit) / 1.2);
  for (std::size_t i = 0; i < one.size(); ++i) {
    const double expected = rows * rounds * std::exp(static_cast<double>(one[i]) / 1.2) / sum;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(statistic, 43.8);
}

}  // namespace
}  // namespace jerboa::language::sampling_graph_test
