#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/language/model.h>
#include <jerboa/language/runner.h>

#include "language/model_folder.h"
#include "support/expect_error.h"

// A small model drafts, and the model verifies: the text is the model's own.
namespace jerboa::language::drafter_test {
namespace {

using test::expect_error;
using test::greedy;
using test::ModelFolder;

LanguageModelOptions on_the_cpu() { return {.device = Device::cpu(2)}; }

GenerateOptions guessing(GenerateOptions options) {
  options.drafts = 4;
  return options;
}

GenerateOptions sampled(std::uint64_t seed) {
  return {.max_tokens = 20, .sampling = SamplerOptions{.temperature = 0.8f, .seed = seed}};
}

// Attention, windows, experts and recurrent states, each with drafts that are always right and with drafts that rarely
// are.
TEST(DraftModel, DoesNotChangeTheText) {
  for (const char* family : {"llama", "gemma2", "qwen3_moe", "lfm2"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family), other(std::string(family) == "llama" ? "gpt2" : "llama");
    LanguageModel plain = folder.open(), with_itself = folder.open(), with_another = folder.open();
    with_itself.draft_with(folder.path(), on_the_cpu());
    with_another.draft_with(other.path(), on_the_cpu());
    for (const GenerateOptions& options : {greedy(24), sampled(1), sampled(2)}) {
      const auto wanted = plain.continue_tokens(folder.prompt(), options).tokens;
      const Generation result = with_itself.continue_tokens(folder.prompt(), guessing(options));
      EXPECT_EQ(result.tokens, wanted);
      EXPECT_GT(result.drafted, 0);
      const bool is_greedy = options.sampling->temperature == 0;
      EXPECT_TRUE(result.accepted == result.drafted || !is_greedy) << result.accepted << " of " << result.drafted;
      EXPECT_EQ(with_another.continue_tokens(folder.prompt(), guessing(options)).tokens, wanted);
    }
  }
}

// A text of one token has no prompt to compute before its first draft.
TEST(DraftModel, GuessesFromTheFirstTokenOn) {
  const ModelFolder folder("llama");
  LanguageModel plain = folder.open(), model = folder.open();
  model.draft_with(folder.path(), on_the_cpu());
  const test::Tokens prompt{folder.prompt().front()};
  const Generation result = model.continue_tokens(prompt, guessing(greedy(12)));
  EXPECT_EQ(result.tokens, plain.continue_tokens(prompt, greedy(12)).tokens);
  EXPECT_GT(result.accepted, 0);
}

TEST(DraftModel, GuessesForSeveralTextsAtOnce) {
  const ModelFolder folder("llama");
  LanguageModel plain = folder.open(), model = folder.open();
  model.draft_with(folder.path(), on_the_cpu());
  std::vector<Stream> streams;
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    streams.push_back(model.submit(folder.prompt(), guessing(seed == 0 ? greedy(20) : sampled(seed))));
  streams[3].cancel();
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    if (seed == 3) continue;
    EXPECT_EQ(streams[seed].wait().tokens,
              plain.continue_tokens(folder.prompt(), seed == 0 ? greedy(20) : sampled(seed)).tokens);
  }
  EXPECT_GT(model.statistics().accepted, 0);
}

TEST(DraftModel, LeavesLongTextsToTheModel) {
  const ModelFolder folder("llama");
  LanguageModel plain = folder.open(), model = folder.open();
  LanguageModelOptions short_context = on_the_cpu();
  short_context.context = static_cast<int>(folder.prompt().size()) + 6;
  model.draft_with(folder.path(), short_context);
  const Generation result = model.continue_tokens(folder.prompt(), guessing(greedy(20)));
  EXPECT_EQ(result.tokens, plain.continue_tokens(folder.prompt(), greedy(20)).tokens);
  EXPECT_LE(result.drafted, 6);
}

// Most models are loaded with a shorter context than they support, which must not limit the drafts.
TEST(DraftModel, GuessesAsFarAsTheModelWrites) {
  const ModelFolder folder("llama"), shorter("llama");
  const auto set_context = [](const ModelFolder& changed, int context) {
    auto config = nlohmann::json::parse(test::read_text(changed.path() / "config.json"));
    config["max_position_embeddings"] = context;
    changed.write("config.json", config.dump());
  };
  constexpr int context = 4200, usual = 4096;
  set_context(folder, 2 * context);
  set_context(shorter, usual);
  std::vector<std::int32_t> prompt(usual + 10, folder.prompt().back());
  const auto drafted = [&](const ModelFolder& drafts_with, int draft_context) {
    LanguageModelOptions options = on_the_cpu();
    options.context = context;
    LanguageModel model = folder.open(options);
    options.context = draft_context;
    model.draft_with(drafts_with.path(), options);
    return model.continue_tokens(prompt, guessing(greedy(8))).drafted;
  };
  EXPECT_GT(drafted(folder, 0), 0);
  EXPECT_EQ(drafted(folder, usual), 0);
  EXPECT_EQ(drafted(shorter, 0), 0);  // it supports no more
}

TEST(DraftModel, IsRefusedIfItsTokensDiffer) {
  const ModelFolder folder("llama"), other("llama");
  std::string tokenizer = test::byte_tokenizer();
  const auto swap = [&](const std::string& from, const std::string& to) {
    tokenizer.replace(tokenizer.find(from), from.size(), to);
  };
  swap("\"A\":65", "\"A\":166");
  swap("\"B\":66", "\"B\":65");
  swap("\"A\":166", "\"A\":66");
  other.write("tokenizer.json", tokenizer);
  LanguageModel model = folder.open();
  expect_error<UsageError>([&] { model.draft_with(other.path(), on_the_cpu()); },
                           "the draft model's tokenizer differs from the model's: token 65 is \"B\" instead of \"A\"");
}

TEST(DraftModel, CannotChangeWhileTextsAreGenerated) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open();
  const Stream stream = model.submit(folder.prompt(), greedy(5));
  expect_error<UsageError>([&] { model.draft_with(folder.path(), on_the_cpu()); }, "while texts are being generated");
}

}  // namespace
}  // namespace jerboa::language::drafter_test
