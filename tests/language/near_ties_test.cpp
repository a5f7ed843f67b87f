#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/language/runner.h>

#include "language/model_folder.h"

// Cases in which texts that are generated together need not be equal to the bit: in 8 bits, with an f16 cache, and
// through programs of other shapes. Logits of the same text stay close, and texts diverge only where two tokens are
// equally likely.
namespace jerboa::language::near_ties_test {
namespace {

using test::greedy;
using test::ModelFolder;
using test::Tokens;

// Relative to the largest logit.
constexpr double tolerance = 0.02;

double largest_of(std::span<const float> logits) {
  double largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::fabs(static_cast<double>(logit)));
  return largest;
}

// The logits after each generated token.
std::vector<std::vector<float>> written_logits(LanguageModel& model, const Tokens& prompt, int count, Tokens& text) {
  std::vector<std::vector<float>> all;
  GenerateOptions options = greedy(count);
  options.sampler = [&] {
    auto sampler = std::make_unique<Sampler>(SamplerOptions{.temperature = 0});
    sampler->add_processor(
        [&](std::span<float> logits, std::span<const int>) { all.emplace_back(logits.begin(), logits.end()); });
    return sampler;
  };
  text = model.continue_tokens(prompt, options).tokens;
  return all;
}

TEST(NearTies, TeacherForcedLogitsAreThoseOfDecoding) {
  for (const char* family : {"llama", "qwen3_moe", "mamba2"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model = folder.open({.chunk = 16, .weights = DType::i8, .block = 8, .cache = DType::f16});
    Tokens text, all = folder.prompt();
    const auto written = written_logits(model, folder.prompt(), 20, text);
    all.insert(all.end(), text.begin(), text.end());
    const HostTensor forced = model.logits(all);
    const auto width = static_cast<std::size_t>(forced.shape()[1]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto row = forced.f32().subspan((folder.prompt().size() - 1 + i) * width, width);
      const double allowed = tolerance * largest_of(written[i]);
      for (std::size_t token = 0; token < width; ++token)
        ASSERT_NEAR(row[token], written[i][token], allowed) << "token " << token << " after " << i;
    }
  }
}

TEST(NearTies, TextsPartOnlyThere) {
  for (const char* family : {"llama", "qwen3_moe", "mamba2"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    const LanguageModelOptions options{.weights = DType::i8, .block = 8, .cache = DType::f16};
    LanguageModel together = folder.open(options), alone = folder.open(options);
    std::vector<Tokens> prompts;
    for (std::size_t i = 1; i <= 8; ++i) {
      Tokens prompt = folder.prompt();
      prompt.resize(std::max<std::size_t>(1, prompt.size() * i / 8));
      prompts.push_back(std::move(prompt));
    }
    std::vector<Stream> streams;
    for (const Tokens& prompt : prompts) streams.push_back(together.submit(prompt, greedy(20)));
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const Tokens found = streams[i].wait().tokens, wanted = alone.continue_tokens(prompts[i], greedy(20)).tokens;
      const auto [here, there] = std::mismatch(found.begin(), found.end(), wanted.begin(), wanted.end());
      if (here == found.end() || there == wanted.end()) continue;
      Tokens common = prompts[i];
      common.insert(common.end(), found.begin(), here);
      const std::vector<float> logits = alone.next_logits(common);
      const double gap = std::fabs(static_cast<double>(logits[static_cast<std::size_t>(*here)]) -
                                   static_cast<double>(logits[static_cast<std::size_t>(*there)]));
      EXPECT_LT(gap, 2 * tolerance * largest_of(logits)) << "text " << i;
    }
  }
}

}  // namespace
}  // namespace jerboa::language::near_ties_test
