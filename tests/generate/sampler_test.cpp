#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include <jerboa/generate/sampler.h>
#include <jerboa/generate/stop.h>

namespace jerboa {
namespace {

const std::vector<float> rising = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f};

std::set<int> drawn(const SamplerOptions& options, const std::vector<float>& logits, int draws = 3000) {
  Sampler sampler(options);
  std::set<int> out;
  for (int i = 0; i < draws; ++i) {
    std::vector<float> copy = logits;
    out.insert(sampler.sample(copy));
  }
  return out;
}

TEST(CounterRandom, IsTheSameEverywhere) {
  CounterRandom random(0);
  EXPECT_EQ(random.next(), 0xE220A8397B1DCDAFull);  // SplitMix64's published values for seed 0
  EXPECT_EQ(random.next(), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(random.next(), 0x06C45D188009454Full);
  EXPECT_EQ(CounterRandom(0, 2).next(), 0x06C45D188009454Full);
}

TEST(Sampler, GreedyTakesTheFirstOfTheMostLikely) {
  std::vector<float> logits = {1, 5, 5, 2};
  EXPECT_EQ(Sampler({.temperature = 0}).sample(logits), 1);
}

TEST(Sampler, DrawsByTheDistribution) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  Sampler sampler({.seed = 1});
  std::map<int, int> counts;
  for (int i = 0; i < 30000; ++i) {
    std::vector<float> copy = logits;
    ++counts[sampler.sample(copy)];
  }
  EXPECT_NEAR(counts[0], 15000, 400);
  EXPECT_NEAR(counts[1], 9000, 400);
  EXPECT_NEAR(counts[2], 6000, 400);
}

TEST(Sampler, TemperatureSharpens) {
  const std::vector<float> logits = {0, std::log(2.0f)};
  Sampler sampler({.temperature = 0.5f, .seed = 1});
  int second = 0;
  for (int i = 0; i < 10000; ++i) {
    std::vector<float> copy = logits;
    second += sampler.sample(copy);
  }
  EXPECT_NEAR(second, 8000, 250);
}

TEST(Sampler, TheSameSeedDrawsTheSameTokens) {
  const auto run = [](std::uint64_t seed) {
    Sampler sampler({.seed = seed});
    std::vector<int> out;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> copy = {1, 1, 1, 1, 1, 1, 1, 1};
      out.push_back(sampler.sample(copy));
    }
    return out;
  };
  EXPECT_EQ(run(7), run(7));
  EXPECT_NE(run(7), run(8));
  // Equal logits divide [0, 1) in eighths, so that these follow from SplitMix64 alone.
  CounterRandom random(7);
  for (const int token : run(7)) EXPECT_EQ(token, static_cast<int>(random.uniform() * 8));
}

TEST(Sampler, KeepsTheMostLikely) {
  EXPECT_EQ(drawn({.top_k = 2}, rising), (std::set<int>{3, 4}));
  // 0.636, 0.234, 0.086, …
  EXPECT_EQ(drawn({.top_p = 0.6f}, rising), (std::set<int>{4}));
  EXPECT_EQ(drawn({.top_p = 0.7f}, rising), (std::set<int>{3, 4}));
  EXPECT_EQ(drawn({.min_p = 0.1f}, rising), (std::set<int>{2, 3, 4}));
  EXPECT_EQ(drawn({.temperature = 0.01f}, rising), (std::set<int>{4}));
  EXPECT_EQ(drawn({.top_k = 4, .top_p = 0.95f, .min_p = 0.3f}, rising), (std::set<int>{3, 4}));
}

TEST(Sampler, TypicalDropsTheTooLikely) {
  // Entropy of (0.4, 0.15 ×4): surprise 0.92 and 1.90 around 1.50; the four are the closer ones.
  std::vector<float> logits = {std::log(0.4f)};
  for (int i = 0; i < 4; ++i) logits.push_back(std::log(0.15f));
  EXPECT_EQ(drawn({.typical_p = 0.5f}, logits), (std::set<int>{1, 2, 3, 4}));
}

TEST(Sampler, PenalizesSeenTokens) {
  const std::vector<int> prompt = {4};
  Sampler sampler({.temperature = 0, .repetition_penalty = 2});
  sampler.observe(prompt);
  std::vector<float> logits = rising;
  EXPECT_EQ(sampler.sample(logits), 3);  // 4 → 2
  EXPECT_FLOAT_EQ(logits[4], 2);
  std::vector<float> negative = {-1, -1.5f, -9, -9, -9};
  Sampler other({.temperature = 0, .repetition_penalty = 2});
  other.observe(std::vector<int>{0});
  EXPECT_EQ(other.sample(negative), 1);

  Sampler counting({.temperature = 0, .presence_penalty = 0.5f, .frequency_penalty = 0.4f});
  counting.observe(prompt);  // the prompt does not count here
  std::vector<int> tokens;
  for (int i = 0; i < 4; ++i) {
    logits = rising;
    tokens.push_back(counting.sample(logits));
  }
  EXPECT_EQ(tokens, (std::vector<int>{4, 4, 3, 4}));  // 4; 3.1 against 3; 2.7 against 3; 2.7 against 2.1

  Sampler forgetful({.temperature = 0, .presence_penalty = 5, .penalty_window = 1});
  tokens.clear();
  for (int i = 0; i < 3; ++i) {
    logits = rising;
    tokens.push_back(forgetful.sample(logits));
  }
  EXPECT_EQ(tokens, (std::vector<int>{4, 3, 4}));
}

TEST(Sampler, BiasesAndBans) {
  EXPECT_EQ(drawn({.temperature = 0, .logit_bias = {{0, 10.0f}}}, rising, 1), (std::set<int>{0}));
  EXPECT_EQ(drawn({.temperature = 0, .banned_tokens = {4, 3}}, rising, 1), (std::set<int>{2}));
  std::vector<float> logits = {1};
  EXPECT_THROW(Sampler({.banned_tokens = {0}}).sample(logits), UsageError);
  EXPECT_THROW(Sampler({.banned_tokens = {1}}).sample(logits), UsageError);
}

TEST(Sampler, RunsTheCallersProcessors) {
  Sampler sampler({.temperature = 0});
  sampler.add_processor([](std::span<float> logits, std::span<const int> history) { logits[history.size()] = 99; });
  for (int i = 0; i < 3; ++i) {
    std::vector<float> logits = rising;
    EXPECT_EQ(sampler.sample(logits), i);
  }
}

TEST(Sampler, SurvivesInfiniteLogitsAndNaN) {
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(drawn({}, {1, infinite, 2}, 50), (std::set<int>{1}));
  EXPECT_EQ(drawn({.top_p = 0.9f}, {std::nanf(""), -infinite, 2}, 50), (std::set<int>{2}));
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  EXPECT_THROW(Sampler({.temperature = -1}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 0}), UsageError);
  EXPECT_THROW(Sampler({.top_p = 1.5f}), UsageError);
  EXPECT_THROW(Sampler({.min_p = 2}), UsageError);
  EXPECT_THROW(Sampler({.repetition_penalty = 0}), UsageError);
}

struct Fed {
  std::string text;
  std::string stop;
  bool operator==(const Fed&) const = default;
};

Fed feed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Fed out;
  for (const std::string& piece : pieces) out.text += matcher.feed(piece);
  out.text += matcher.finish();
  out.stop = matcher.found().value_or("");
  return out;
}

TEST(StopMatcher, HoldsBackTextThatMayBeginAStopString) {
  StopMatcher matcher({"\nUser:"});
  EXPECT_EQ(matcher.feed("Hello\n"), "Hello");
  EXPECT_EQ(matcher.feed("Us"), "");
  EXPECT_EQ(matcher.feed("e it"), "\nUse it");
  EXPECT_EQ(matcher.feed("\nUser"), "");
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.feed(": more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.found(), "\nUser:");
  EXPECT_EQ(matcher.feed("x"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, ReturnsHeldTextAtTheEnd) { EXPECT_EQ(feed({"stop"}, {"a st", "o"}), (Fed{"a sto", ""})); }

TEST(StopMatcher, DoesNotDependOnWhereThePiecesBreak) {
  CounterRandom random(3);
  const auto letters = [&](std::size_t size) {
    std::string out;
    for (std::size_t i = 0; i < size; ++i) out += static_cast<char>('a' + random.next() % 3);
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> stops = {letters(1 + random.next() % 4), letters(2 + random.next() % 4)};
    const std::string text = letters(random.next() % 20);
    std::vector<std::string> bytes, pieces;
    for (const char c : text) bytes.emplace_back(1, c);
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t size = 1 + random.next() % 5;
      pieces.push_back(text.substr(i, size));
      i += size;
    }
    const Fed expected = feed(stops, bytes);
    ASSERT_EQ(feed(stops, pieces), expected) << text << " / " << stops[0] << " / " << stops[1];
    ASSERT_EQ(feed(stops, {text}), expected) << text << " / " << stops[0] << " / " << stops[1];
    if (expected.stop.empty()) {
      ASSERT_EQ(expected.text, text);
    } else {
      ASSERT_EQ(text.substr(0, expected.text.size() + expected.stop.size()), expected.text + expected.stop);
    }
  }
}

TEST(StopMatcher, KnowsStopTokens) {
  const StopMatcher matcher({}, {2, 7});
  EXPECT_TRUE(matcher.is_stop_token(7));
  EXPECT_FALSE(matcher.is_stop_token(3));
  EXPECT_THROW(StopMatcher({""}), UsageError);
}

}  // namespace
}  // namespace jerboa
