#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/language/calibration.h>
#include <jerboa/language/language_model.h>
#include <jerboa/models/quantise.h>

#include "language/model_folder.h"
#include "support/expect_error.h"

// Models that read a text before they are quantised.
namespace jerboa::calibration_test {
namespace {

const std::filesystem::path stories = JERBOA_SOURCE_DIR "/../shared/models/stories260K";

constexpr const char* tale =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high. Lily's mom said, \"Lily, let's go to the park.\" "
    "Lily was sad and didn't know what to do. She said, \"I want to play with your ball, but I can't find it.\" ";
constexpr const char* another_tale =
    "One day, a little boy named Tim went to the park with his dog. They saw a big tree and a small bird. The bird was "
    "sad because it could not fly. Tim wanted to help the bird. He gave it some food and water. The bird was happy and "
    "said, \"Thank you!\" Tim and his dog went home and told mom about the bird. Mom smiled and gave them a hug. ";

CalibrationOptions on_cpu() { return {.device = Device::cpu(2), .tokens = 2048, .window = 128}; }

// The difference between the logits and those of the original weights.
double error_of(const std::filesystem::path& folder, const std::filesystem::path& original, const std::string& text) {
  LanguageModel model = LanguageModel::load(folder, {.device = Device::cpu(2)});
  LanguageModel exact = LanguageModel::load(original, {.device = Device::cpu(2), .weights = DType::f32});
  auto tokens = exact.tokenizer().encode(text).ids;
  tokens.resize(std::min<std::size_t>(tokens.size(), 120));  // the goldens' contexts are short
  const HostTensor found = model.logits(tokens), wanted = exact.logits(tokens);
  double error = 0;
  for (std::int64_t i = 0; i < wanted.size(); ++i) error += std::pow(found.number(i) - wanted.number(i), 2);
  return error;
}

TEST(Calibration, BringsLogitsCloserToThoseOfTheOriginal) {
  if (!std::filesystem::exists(stories)) GTEST_SKIP() << "stories260K is not here";
  const test::TempFolder folder;
  models::quantise_folder(stories, folder / "plain", DType::i4);
  std::size_t called = 0;
  CalibrationOptions options = on_cpu();
  options.on_progress = [&](std::size_t number, std::size_t count) {
    EXPECT_EQ(number, ++called);
    EXPECT_EQ(count, 30);  // five layers of seven matrices, of which down_proj has 172 columns and is not quantised
  };
  // One short text would fit the matrices to its few words.
  const std::string tales = write_calibration_text(stories, {.device = Device::cpu(2), .texts = 8, .seed = 1});
  quantise_calibrated(stories, folder / "careful", DType::i4, tales, options);
  EXPECT_EQ(called, 30);
  EXPECT_LT(error_of(folder / "careful", stories, another_tale), error_of(folder / "plain", stories, another_tale));
}

TEST(CalibrationText, IsTheSameForTheSameSeed) {
  const test::ModelFolder folder("llama");
  const auto write = [&](std::uint64_t seed) {
    return write_calibration_text(folder.path(), {.device = Device::cpu(2), .texts = 2, .seed = seed});
  };
  EXPECT_EQ(write(1), write(1));
  EXPECT_NE(write(1), write(2));
}

TEST(CalibrationText, HoldsConversationsIfTheModelChats) {
  const test::ModelFolder folder("llama");
  folder.write("chat_template.jinja",
               "{% for message in messages %}<{{ message.role }}>{{ message.content }}</{{ message.role }}>"
               "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const std::string text = write_calibration_text(folder.path(), {.device = Device::cpu(2), .texts = 3});
  const auto count = [&](const std::string& mark) {
    int found = 0;
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("</user><assistant>"), 3);
  EXPECT_EQ(count("</assistant>\n"), 3);
  EXPECT_EQ(text.find("<user></user>"), std::string::npos);  // they ask something
}

// Transposed matrices, experts and tied tables.
TEST(Calibration, TakesEveryKindOfDecoder) {
  for (const char* golden : {"gpt2", "qwen3_moe", "gemma2"}) {
    const test::ModelFolder original(golden);
    const test::TempFolder folder;
    quantise_calibrated(original.path(), folder / "careful", DType::i4, tale, on_cpu());
    const double error = error_of(folder / "careful", original.path(), another_tale);
    models::quantise_folder(original.path(), folder / "plain", DType::i4);
    EXPECT_LT(error, 1.1 * error_of(folder / "plain", original.path(), another_tale)) << golden;
  }
}

TEST(Calibration, RefusesUnusableInput) {
  const test::ModelFolder original("llama");
  const test::TempFolder folder;
  test::expect_error<UsageError>([&] { quantise_calibrated(original.path(), folder / "x", DType::i4, "", on_cpu()); },
                                 "the text for calibration has no tokens");
  test::expect_error<UsageError>(
      [&] { quantise_calibrated(original.path(), folder / "x", DType::i4, tale, {.tokens = 0}); },
      "calibration needs at least one token");
}

}  // namespace
}  // namespace jerboa::calibration_test
