#include "steps/sampling_graph.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/generate/logprobs.h>
#include <jerboa/generate/sampler.h>
#include <jerboa/ops/ops.h>
#include <jerboa/serving/seen_tokens.h>
#include <jerboa/serving/step.h>

// Sampling on a device compared with the host's Sampler.
namespace jerboa::language::sampling_graph_test {
namespace {

struct Draws {
  std::vector<SamplerOptions> settings;  // of each row
  std::vector<std::uint32_t> first;      // the number of each row's first draw
  std::vector<std::uint32_t> mask = {};
  std::vector<std::vector<int>> prompts = {}, generated = {};  // of each row, for penalties
  std::vector<std::int32_t> taken = {};                        // after them, known only to the device
};

// The devices that draw are the tests' parameter.
class SamplingGraph : public testing::TestWithParam<const char*> {
 protected:
  static Device device() { return std::string_view(GetParam()) == "cpu" ? Device::cpu(2) : Device::webgpu(); }
  static bool is_webgpu() { return std::string_view(GetParam()) == "webgpu"; }
};
INSTANTIATE_TEST_SUITE_P(Devices, SamplingGraph, testing::Values("cpu"));
#ifdef JERBOA_WEBGPU
INSTANTIATE_TEST_SUITE_P(WebGpu, SamplingGraph, testing::Values("webgpu"));
#endif

// Draws on the device from logits [rows, outputs, vocabulary].
class DeviceSampler {
 public:
  DeviceSampler(const Device& device, Sizes shape, const EntryKey& key, bool as_gpu = false)
      : shape_(std::move(shape)), key_(key), session_(device) {
    const auto graph = trace([&] {
      const Tensor logits = tensor_input("logits", to_shape(shape_));
      Tensor taken;
      if (key.penalised > 0) taken = tensor_input("taken", {shape_[0]}, DType::i32);
      for (const auto& [name, tensor] : draw_tokens(logits, key, taken, as_gpu)) output(name, tensor);
    });
    session_.add_entry("draw", graph);
  }

  std::vector<std::int32_t> operator()(const std::vector<float>& logits, const Draws& draws) {
    const std::int64_t rows = shape_[0], outputs = shape_[1];
    TensorMap inputs{{"logits", HostTensor(shape_, std::span<const float>(logits))}};
    if (key_.drawing == Drawing::sampled) {
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
    if (key_.biased > 0) add_biases(inputs, draws);
    if (key_.penalised > 0) add_penalties(inputs, draws);
    result_ = session_.run("draw", inputs);
    const HostTensor tokens = result_.get("tokens");
    return {tokens.i32().begin(), tokens.i32().end()};
  }
  /// Another output of the last call.
  HostTensor output_of(const std::string& name) const { return result_.get(name); }

 private:
  void add_biases(TensorMap& inputs, const Draws& draws) const {
    HostTensor tokens(DType::i32, {shape_[0], key_.biased}), bias(DType::f32, tokens.shape());
    for (std::size_t row = 0; row < draws.settings.size(); ++row) {
      auto at = static_cast<std::int64_t>(row) * key_.biased;
      for (const auto& [token, value] : draws.settings[row].logit_bias) {
        tokens.set_number(at, token);
        bias.set_number(at++, value);
      }
      for (const int token : draws.settings[row].banned_tokens) {
        tokens.set_number(at, token);
        bias.set_number(at++, serving::banned_bias);
      }
    }
    inputs.insert({{"biased_tokens", tokens}, {"bias", bias}});
  }

  void add_penalties(TensorMap& inputs, const Draws& draws) const {
    const auto size = static_cast<std::size_t>(key_.penalised), rows = static_cast<std::size_t>(shape_[0]);
    HostTensor tokens(DType::i32, {shape_[0], 1, key_.penalised}), seen(DType::f32, tokens.shape());
    HostTensor repetition(DType::f32, {shape_[0]}), presence = repetition, frequency = repetition;
    for (std::size_t row = 0; row < rows; ++row) {
      serving::SeenTokens text(draws.prompts[row], draws.settings[row].penalty_window);
      for (const int token : draws.generated[row]) text.push(token);
      if (draws.taken[row] >= 0) text.leave_room();
      text.list(tokens.as<std::int32_t>().subspan(row * size, size), seen.f32().subspan(row * size, size));
      repetition.f32()[row] = draws.settings[row].repetition_penalty;
      presence.f32()[row] = draws.settings[row].presence_penalty;
      frequency.f32()[row] = draws.settings[row].frequency_penalty;
    }
    inputs.insert({{"seen_tokens", tokens},
                   {"seen", seen},
                   {"repetition_penalty", repetition},
                   {"presence_penalty", presence},
                   {"frequency_penalty", frequency},
                   {"taken", HostTensor({shape_[0]}, std::span<const std::int32_t>(draws.taken))}});
  }

  Sizes shape_;
  EntryKey key_;
  Result result_;
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
    // The sampler with a given random number: the seed whose first number is closest is unknown, so the draw is
    // repeated here by its definition.
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

// The token that a Sampler draws as number `draw` of a text that continues after `generated`.
int host_token(std::vector<float> logits, const SamplerOptions& options, const std::vector<int>& prompt,
               const std::vector<int>& generated, std::uint32_t draw) {
  // Its history and its number of draws are set up by certain draws.
  SamplerOptions settings = options;
  settings.seed += split_mix_step * (std::uint64_t{draw} - generated.size());
  Sampler sampler(settings);
  sampler.observe(prompt);
  for (const int token : generated) {
    std::vector<float> certain(logits.size(), -std::numeric_limits<float>::infinity());
    certain[static_cast<std::size_t>(token)] = 0;
    EXPECT_EQ(sampler.sample(certain), token);
  }
  return sampler.sample(logits);
}

TEST_P(SamplingGraph, DrawsTheNumbersOfCounterRandom) {
  const std::vector<std::uint64_t> seeds{0, 1, 0xffffffffu, 0x123456789abcdef0u, ~std::uint64_t{0}};
  const auto rows = std::ssize(seeds);
  const auto graph = trace([&] {
    const Tensor seed = tensor_input("seed", {rows, 2}, DType::u32);
    output("uniform", uniform_draws(seed, tensor_input("draw", {rows, 3}, DType::u32)));
  });
  Session session(device());
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

TEST_P(SamplingGraph, TakesTheFirstOfTheMostLikely) {
  for (const int vocabulary : {1, 5, 512, 513, 2000}) {
    DeviceSampler greedy(device(), {2, 1, vocabulary}, {.drawing = Drawing::greedy});
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
void compare_with_host(const Device& where, int vocabulary, bool as_gpu, int rounds) {
  const int rows = static_cast<int>(varied.size());
  DeviceSampler device(where, {rows, 1, vocabulary}, {.drawing = Drawing::sampled}, as_gpu);
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
      const auto row_logits = std::span(logits).subspan(row * count, count);
      const SamplerOptions& options = draws.settings[row];
      ++all;
      if (options.temperature == 0) {
        EXPECT_EQ(tokens[row], std::max_element(row_logits.begin(), row_logits.end()) - row_logits.begin());
        continue;
      }
      const HostDraw host = host_draw(row_logits, options, static_cast<std::uint64_t>(round));
      if (host.distance == 0)
        ++close;
      else
        EXPECT_EQ(tokens[row], host.token) << fmt::format("{} tokens, row {}, round {}", vocabulary, row, round);
    }
  }
  EXPECT_LT(close, all / 4) << "too many draws near a boundary to say much";
}

TEST_P(SamplingGraph, DrawsTheSameTokensAsTheHost) {
  compare_with_host(device(), 300, is_webgpu(), 60);
  if (!is_webgpu()) compare_with_host(device(), 3001, false, 10);
}

TEST(SamplingGraphOnHost, DrawsTheSameWithTheStepsOfAGpu) { compare_with_host(Device::cpu(2), 1000, true, 20); }

// The definition in this test is the Sampler's own.
TEST(SamplingGraphOnHost, ComparesWithTheSampler) {
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

// If equal logits straddle the limit of top-k or top-p, the first are kept, as on the host.
TEST_P(SamplingGraph, KeepsTheFirstOfEqualTokens) {
  const int vocabulary = 1100;
  const std::vector<SamplerOptions> settings{
      {.top_k = 5}, {.top_p = 0.004f}, {.top_k = 10, .top_p = 0.5f}, {.top_k = 1}};
  DeviceSampler sampler(device(), {4, 1, vocabulary}, {.drawing = Drawing::sampled});
  std::vector<std::set<int>> seen(settings.size());
  for (std::uint32_t draw = 0; draw < 200; ++draw) {
    const auto tokens = sampler(std::vector<float>(4 * vocabulary, 1.5f), {settings, {draw, draw, draw, draw}});
    for (std::size_t row = 0; row < settings.size(); ++row) seen[row].insert(tokens[row]);
  }
  EXPECT_EQ(seen[0], (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen[1], (std::set<int>{0, 1, 2, 3, 4}));  // five of 1100 reach 0.4 %
  EXPECT_EQ(seen[2], (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen[3], (std::set<int>{0}));
}

TEST_P(SamplingGraph, DrawsOnlyTokensThatTheMaskAllows) {
  const int vocabulary = 1030, words = (vocabulary + 31) / 32;
  for (const Drawing drawing : {Drawing::greedy, Drawing::sampled}) {
    DeviceSampler sampler(device(), {2, 1, vocabulary}, {.drawing = drawing, .masked = true});
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(2 * words));
    for (const int token : {3, 64, 1029}) mask[static_cast<std::size_t>(token / 32)] |= 1u << (token % 32);
    for (int token = 0; token < vocabulary; ++token)
      mask[static_cast<std::size_t>(words + token / 32)] |= 1u << (token % 32);
    std::set<int> first, second;
    for (std::uint32_t draw = 0; draw < 100; ++draw) {
      const auto tokens = sampler(random_logits(static_cast<std::size_t>(2 * vocabulary), draw, 2),
                                  {{{.temperature = 3}, {.temperature = 3}}, {draw, draw}, mask});
      first.insert(tokens[0]);
      second.insert(tokens[1]);
    }
    EXPECT_EQ(first, (std::set<int>{3, 64, 1029}));
    EXPECT_GT(second.size(), 50u);
  }
}

// Rows with drafts draw one token after each, with numbers of their own.
TEST_P(SamplingGraph, DrawsOneTokenForEachOutput) {
  const int vocabulary = 40;
  const EntryKey key{.drawing = Drawing::sampled};
  DeviceSampler whole(device(), {2, 3, vocabulary}, key), single(device(), {1, 1, vocabulary}, key);
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

// The host's own Sampler draws the same tokens for the same text: with penalties of every kind, over all tokens and
// over a window, with a last token that only the device knows, and with biases and banned tokens.
TEST_P(SamplingGraph, PenalisesAsTheHostDoes) {
  constexpr int vocabulary = 300, rounds = 12;
  const std::vector<SamplerOptions> kinds{
      {.temperature = 0, .repetition_penalty = 1.7f},
      {.temperature = 0, .presence_penalty = 2, .frequency_penalty = 0.7f},
      {.temperature = 0.8f, .top_k = 40, .repetition_penalty = 0.6f, .frequency_penalty = -0.4f},
      {.temperature = 0, .repetition_penalty = 1.4f, .presence_penalty = 1, .penalty_window = 5},
      {.temperature = 0, .presence_penalty = 3, .penalty_window = 1},
      {.temperature = 1, .logit_bias = {{7, 4.0f}, {9, -3.0f}, {7, 1.0f}}, .banned_tokens = {1, 2, 3}},
      {.temperature = 0, .repetition_penalty = 2, .logit_bias = {{11, 2.5f}}, .banned_tokens = {0}},
      {.temperature = 0},
  };
  const int rows = static_cast<int>(kinds.size());
  DeviceSampler sampler(device(), {rows, 1, vocabulary}, {.drawing = Drawing::sampled, .penalised = 64, .biased = 16},
                        is_webgpu());
  SplitMix random(11);
  int different = 0, all = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto logits = random_logits(static_cast<std::size_t>(rows * vocabulary), round + 5, 9);
    Draws draws{kinds, std::vector<std::uint32_t>(kinds.size(), round)};
    for (std::size_t row = 0; row < kinds.size(); ++row) {
      draws.settings[row].seed = row + 40;
      const auto row_logits = std::span(logits).subspan(row * vocabulary, vocabulary);
      constexpr int first = 20;  // none that is banned
      const auto best =
          static_cast<int>(std::max_element(row_logits.begin() + first, row_logits.end()) - row_logits.begin());
      const auto random_token = [&] { return first + static_cast<int>(random.below(vocabulary - first)); };
      std::vector<int> prompt, generated;
      for (int i = 0; i < 6; ++i) prompt.push_back(random_token());
      for (std::uint32_t i = 0; i < round; ++i) generated.push_back(random_token());
      // The most likely token is part of the text, so that penalties matter.
      if (round % 3 == 0) prompt.push_back(best);
      if (round % 3 == 1) generated.push_back(best);
      draws.prompts.push_back(prompt);
      draws.generated.push_back(generated);
      draws.taken.push_back(round % 3 == 2 ? best : -1);
    }
    const auto tokens = sampler(logits, draws);
    for (std::size_t row = 0; row < kinds.size(); ++row) {
      std::vector<float> row_logits(logits.begin() + static_cast<std::ptrdiff_t>(row * vocabulary),
                                    logits.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocabulary));
      const auto plain = std::max_element(row_logits.begin(), row_logits.end()) - row_logits.begin();
      std::vector<int> generated = draws.generated[row];
      if (draws.taken[row] >= 0) generated.push_back(draws.taken[row]);
      EXPECT_EQ(tokens[row], host_token(row_logits, draws.settings[row], draws.prompts[row], generated, round))
          << "row " << row << ", round " << round;
      different += tokens[row] != plain ? 1 : 0;
      ++all;
    }
  }
  EXPECT_GT(different, all / 3) << "penalties hardly change anything here";
}

// As the host computes them: by the model's logits with their biases, whatever penalties and temperature do.
TEST_P(SamplingGraph, GivesLogProbabilities) {
  for (const int vocabulary : {7, 700}) {
    DeviceSampler sampler(device(), {2, 2, vocabulary},
                          {.drawing = Drawing::sampled, .biased = 16, .logprobs = Logprobs::listed}, is_webgpu());
    std::vector<float> logits = random_logits(static_cast<std::size_t>(4 * vocabulary), 21, 7);
    logits[4] = logits[5] = 9;  // of equal ones the first comes first
    const std::vector<SamplerOptions> settings{{.temperature = 0.5f, .logit_bias = {{2, 6.0f}}},
                                               {.temperature = 3, .banned_tokens = {3}}};
    const auto tokens = sampler(logits, {settings, {0, 0}});
    const HostTensor drawn = sampler.output_of("logprobs"), likeliest = sampler.output_of("likeliest"),
                     theirs = sampler.output_of("likeliest_logprobs");
    const auto listed = static_cast<std::size_t>(std::min(vocabulary, most_logprobs));
    ASSERT_EQ(likeliest.shape(), (Sizes{2, 2, static_cast<std::int64_t>(listed)}));
    for (std::size_t at = 0; at < 4; ++at) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(at) * vocabulary;
      std::vector<float> row_logits(begin, begin + vocabulary);
      if (at < 2)
        row_logits[2] += 6;
      else
        row_logits[3] = -std::numeric_limits<float>::infinity();
      const TokenDistribution wanted = distribution_of(row_logits, static_cast<int>(listed));
      EXPECT_NEAR(drawn.f32()[at], wanted.logprob(tokens[at]), 1e-4);
      for (std::size_t i = 0; i < listed; ++i) {
        EXPECT_EQ(likeliest.i32()[at * listed + i], wanted.likeliest[i].first) << at << ' ' << i;
        if (std::isfinite(wanted.likeliest[i].second)) {
          EXPECT_NEAR(theirs.f32()[at * listed + i], wanted.likeliest[i].second, 1e-4);
        }
      }
    }
  }
}

// Pearson's statistic over 100,000 draws: below the 99.9th percentile for its 19 degrees of freedom.
TEST(SamplingGraphOnHost, DrawsByTheDistribution) {
  const int vocabulary = 20, rows = 1000, rounds = 100;
  DeviceSampler device(Device::cpu(2), {rows, 1, vocabulary}, {.drawing = Drawing::sampled});
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
