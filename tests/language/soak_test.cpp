#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

#include <jerboa/base/random.h>
#include <jerboa/language/runner.h>

#include "language/model_folder.h"

// Texts that arrive, fork, end and are cancelled at random, over a cache that is too small for all of them. With
// `deterministic`, each equals, to the bit, the text that the model generates alone.
namespace jerboa::language::soak_test {
namespace {

using test::ModelFolder;
using test::Tokens;

// JERBOA_SOAK_SECONDS makes it longer.
double soak_seconds() {
  const char* seconds = std::getenv("JERBOA_SOAK_SECONDS");
  return seconds != nullptr ? std::atof(seconds) : 3;
}

class Soak {
 public:
  Soak(const ModelFolder& folder, std::uint64_t seed)
      : random_(seed),
        prompt_(folder.prompt()),
        model_(folder.open({.context = 96, .sequences = 64, .cache_tokens = 700, .block = 8, .deterministic = true})) {}

  void run(double seconds) {
    while (elapsed() < seconds || !texts_.empty()) {
      const int crowd = below(8) == 0 ? 40 : 2;
      for (int i = 0; i < crowd && texts_.size() < 100 && elapsed() < seconds; ++i) arrive();
      if (!texts_.empty() && below(6) == 0) leave();
      model_.poll(0);
      collect();
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_FALSE(model_.poll(0));
    const Statistics statistics = model_.statistics();
    EXPECT_EQ(statistics.ended, statistics.submitted);
    EXPECT_EQ(statistics.used_blocks, statistics.cached_blocks) << "blocks leak";
    model_.runner().clear_cache();
    EXPECT_EQ(model_.statistics().used_blocks, 0) << "blocks leak";
    EXPECT_GT(checked_, 20);
    EXPECT_GT(statistics.evictions, 0);
    std::cout << checked_ << " whole texts, " << cut_ << " cancelled\n" << print(statistics);
  }

 private:
  struct Text {
    Stream stream;
    Tokens prompt;
    GenerateOptions options;
    bool is_cancelled = false;
  };

  int below(int bound) { return static_cast<int>(random_.below(static_cast<std::uint64_t>(bound))); }
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  void arrive() {
    Text text;
    text.prompt.assign(prompt_.begin(), prompt_.begin() + 1 + below(static_cast<int>(prompt_.size())));
    for (int extra = below(30); extra > 0; --extra) text.prompt.push_back(below(256));
    const bool is_sampled = below(2) == 0;
    text.options = {
        .max_tokens = 1 + below(40),
        .sampling = SamplerOptions{
            .temperature = is_sampled ? 1.0f : 0.0f, .top_k = below(50), .seed = static_cast<std::uint64_t>(below(3))}};
    if (texts_.size() > 3 && below(5) == 0 && !texts_.back().stream.ended()) {
      const Tokens before = texts_.back().stream.result().tokens;
      text.prompt = texts_.back().prompt;
      text.prompt.insert(text.prompt.end(), before.begin(), before.end());
      text.stream = model_.runner().fork(texts_.back().stream, text.options);
    } else {
      text.stream = model_.submit(text.prompt, text.options);
    }
    texts_.push_back(std::move(text));
  }

  void leave() {
    Text& text = texts_[static_cast<std::size_t>(below(static_cast<int>(texts_.size())))];
    text.is_cancelled = true;
    text.stream.cancel();
  }

  void collect() {
    for (std::size_t i = 0; i < texts_.size();) {
      if (!texts_[i].stream.ended()) {
        ++i;
        continue;
      }
      check(texts_[i]);
      std::swap(texts_[i], texts_.back());
      texts_.pop_back();
    }
  }

  // Most are only compared with what other texts of the same beginning wrote before; a few are written again, alone.
  void check(const Text& text) {
    const Generation result = text.stream.result();
    if (result.reason == StopReason::cancelled) {
      EXPECT_TRUE(text.is_cancelled);
      ++cut_;
      return;
    }
    ASSERT_NE(result.reason, StopReason::failed) << result.error;
    ++checked_;
    const SamplerOptions& sampling = *text.options.sampling;
    const auto key = std::tuple(text.prompt, sampling.temperature, sampling.temperature > 0 ? sampling.top_k : 0,
                                sampling.temperature > 0 ? sampling.seed : 0);
    const auto [known, is_new] = written_.try_emplace(key, result.tokens);
    const std::size_t common = std::min(known->second.size(), result.tokens.size());
    EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.begin() + static_cast<std::ptrdiff_t>(common),
                           known->second.begin()));
    if (is_new && alone_.size() < 40) alone_.emplace_back(text.prompt, text.options, result.tokens);
  }

 public:
  // After the soak, with nothing else in the cache.
  void check_alone() {
    model_.runner().clear_cache();
    for (const auto& [prompt, options, tokens] : alone_) {
      EXPECT_EQ(model_.continue_tokens(prompt, options).tokens, tokens);
      model_.runner().clear_cache();
    }
  }

 private:
  SplitMix random_;
  Tokens prompt_;
  LanguageModel model_;
  std::vector<Text> texts_;
  std::map<std::tuple<Tokens, float, int, std::uint64_t>, Tokens> written_;
  std::vector<std::tuple<Tokens, GenerateOptions, Tokens>> alone_;
  int checked_ = 0, cut_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TEST(LanguageSoak, EveryTextIsTheOneGeneratedAlone) {
  const ModelFolder folder("llama");
  Soak soak(folder, 1);
  soak.run(soak_seconds());
  soak.check_alone();
}

}  // namespace
}  // namespace jerboa::language::soak_test
