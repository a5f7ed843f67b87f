#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/language/calibration.h>
#include <jerboa/language/language_model.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::filesystem::path stories = JERBOA_SOURCE_DIR "/../shared/models/stories260K";

class PerplexityOfStories : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(stories)) GTEST_SKIP() << "stories260K is not here";
    const auto reference = nlohmann::json::parse(test::read_text(stories / "reference.json"));
    tokens = reference["prompt_ids"].get<Tokens>();
    const auto generated = reference["generated_ids"].get<Tokens>();
    tokens.insert(tokens.end(), generated.begin(), generated.end());
  }
  static LanguageModel open(int context = 0, int chunk = 128) {
    return LanguageModel::load(stories, {.device = Device::cpu(2), .context = context, .chunk = chunk});
  }

  Tokens tokens;
};

double log_probability(std::span<const float> logits, std::int32_t token) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - std::log(sum);
}

// The logits that NumPy computed for the whole text.
TEST_F(PerplexityOfStories, IsThatOfTheReferenceLogits) {
  const std::string bytes = test::read_text(stories / "reference_logits.f32");
  constexpr std::size_t vocabulary = 512;
  std::vector<float> logits(bytes.size() / sizeof(float));
  ASSERT_EQ(logits.size(), tokens.size() * vocabulary);
  std::memcpy(logits.data(), bytes.data(), bytes.size());
  double sum = 0;
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    sum -= log_probability(std::span(logits).subspan(i * vocabulary, vocabulary), tokens[i + 1]);
  const double wanted = std::exp(sum / static_cast<double>(tokens.size() - 1));
  for (const int chunk : {1, 7, 128}) {
    LanguageModel model = open(0, chunk);
    const Perplexity found = model.perplexity(tokens);
    EXPECT_NEAR(found.value, wanted, 1e-4 * wanted) << chunk;
    EXPECT_EQ(found.tokens, std::ssize(tokens) - 1);
  }
}

// Windows of 16: the first predicts 16 tokens; each later one, which begins with the mark, predicts the tokens that the
// previous one did not reach.
TEST_F(PerplexityOfStories, ComesFromOverlappingWindows) {
  constexpr std::size_t window = 16, stride = 8;
  LanguageModel model = open(window), fresh = open();
  double sum = 0;
  std::size_t scored = 0;
  for (std::size_t begin = 0; scored + 1 < tokens.size(); begin += stride) {
    const std::size_t mark = begin > 0 ? 1 : 0, last = std::min(begin + window - mark, tokens.size() - 1);
    for (std::size_t next = scored + 1; next <= last; ++next) {
      Tokens seen(mark, tokens[0]);
      seen.insert(seen.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                  tokens.begin() + static_cast<std::ptrdiff_t>(next));
      ASSERT_LE(seen.size(), window);
      sum -= log_probability(fresh.next_logits(seen), tokens[next]);
    }
    scored = last;
  }
  const double wanted = std::exp(sum / static_cast<double>(tokens.size() - 1));
  std::int64_t progress = 0;
  const Perplexity found = model.perplexity(tokens, [&](std::int64_t done) { progress = done; });
  EXPECT_NEAR(found.value, wanted, 1e-4 * wanted);
  EXPECT_EQ(found.tokens, std::ssize(tokens) - 1);
  EXPECT_EQ(progress, found.tokens);
  // Generation afterwards is not disturbed.
  const GenerateOptions greedy{.max_tokens = 4, .sampling = SamplerOptions{.temperature = 0}};
  const Tokens prompt(tokens.begin(), tokens.begin() + 5);
  EXPECT_EQ(model.continue_tokens(prompt, greedy).tokens, Tokens(tokens.begin() + 5, tokens.begin() + 9));
}

// The perplexity lost by storing weights, or the cache, in fewer bits.
TEST_F(PerplexityOfStories, IsHardlyHigherWithFewerBits) {
  const std::string text = test::read_text(JERBOA_SOURCE_DIR "/tests/data/texts/stories.txt");
  const auto perplexity_of = [&](const std::filesystem::path& folder, LanguageModelOptions options) {
    options.device = Device::cpu(2);
    LanguageModel model = LanguageModel::load(folder, options);
    return model.perplexity(model.tokenizer().encode(text).ids).value;
  };
  const double exact = perplexity_of(stories, {.weights = DType::f32});
  EXPECT_LT(perplexity_of(stories, {.weights = DType::i8}), 1.005 * exact);
  EXPECT_LT(perplexity_of(stories, {.weights = DType::f32, .cache = DType::i8}), 1.005 * exact);
  const double plain = perplexity_of(stories, {.weights = DType::i4});
  EXPECT_LT(plain, 1.08 * exact);
  const test::TempFolder folder;
  // Calibrated on the model's own output, which is not the text that is measured.
  LanguageModel author = LanguageModel::load(stories, {.device = Device::cpu(2), .weights = DType::f32});
  std::string tales;
  for (std::uint64_t seed = 1; seed <= 24; ++seed)
    tales += author
                 .generate("Once upon a time",
                           {.max_tokens = 256, .sampling = SamplerOptions{.temperature = 0.8F, .seed = seed}})
                 .text;
  quantise_calibrated(stories, folder / "careful", DType::i4, tales, {.device = Device::cpu(2)});
  EXPECT_LT(perplexity_of(folder / "careful", {}), plain);
}

TEST_F(PerplexityOfStories, NeedsTokensThatTheModelHas) {
  LanguageModel model = open();
  test::expect_error<UsageError>([&] { model.perplexity(Tokens{1}); }, "a text of at least two tokens");
  test::expect_error<UsageError>([&] { model.perplexity(Tokens{1, 512}); }, "there is no token 512; the model has 512");
}

}  // namespace
}  // namespace jerboa
