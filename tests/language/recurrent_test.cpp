#include <gtest/gtest.h>
#include <thread>

#include <jerboa/language/runner.h>

#include "language/model_folder.h"
#include "steps/model_sizes.h"

// Models with recurrent layers, whose states can be copied but not truncated.
namespace jerboa::language::recurrent_test {
namespace {

using test::greedy;
using test::ModelFolder;
using test::Tokens;

const char* const families[] = {"mamba2", "qwen3_next"};

// A new text starts from zeros whatever its slot holds, so that nothing has to be cleared.
TEST(Recurrent, TextsBeginWithoutCopies) {
  for (const char* family : families) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model = folder.open({.block = 64});  // more than the prompt has, so that there are no snapshots
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation()) << i;
    EXPECT_FALSE(model.session().has_entry("copy states"));
  }
}

TEST(Recurrent, CopiesOnlyTheStatesThatMove) {
  const ModelFolder folder("mamba2");
  LanguageModel model = folder.open({.sequences = 64, .block = 8});
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation()) << i;
  ASSERT_TRUE(model.session().has_entry("copy states"));
  EXPECT_LT(model.session().memory_report("copy states").activations, model.model().cache().bytes / 4)
      << "there are 146 slots, of which 8 are copied at once";
}

TEST(Recurrent, StatesArePartOfTheBudget) {
  constexpr std::int64_t mib = 1 << 20;
  const StateSizes gpu = state_sizes({.is_gpu = true}, 18 * mib, true), cpu = state_sizes({}, 18 * mib, true);
  EXPECT_LE(gpu.slots * 18 * mib, 512 * mib);
  EXPECT_LT(gpu.sequences, gpu.slots);
  EXPECT_EQ(cpu.sequences, 8);
  EXPECT_LE(cpu.slots * 18 * mib, 256 * mib);
  const StateSizes small = state_sizes({.is_gpu = true}, 1000, true);
  EXPECT_EQ(small.sequences, 64);
  EXPECT_EQ(small.slots, 144);
  const StateSizes asked = state_sizes({.sequences = 100}, 18 * mib, false);
  EXPECT_EQ(asked.sequences, 100);
  EXPECT_GT(asked.slots, 100) << "what the user asks for must run";
  EXPECT_EQ(state_sizes({}, 0, true).slots, 0);

  const ModelFolder folder("mamba2");
  LanguageModel model = folder.open();
  EXPECT_GT(model.model().cache().bytes, 0) << "there are no keys and values";
  EXPECT_EQ(model.statistics().cache_bytes, model.model().cache().bytes);
}

// Scored texts share one state.
TEST(Recurrent, ScoresTextsOfSeveralThreads) {
  const ModelFolder folder("mamba2");
  LanguageModel model = folder.open({.chunk = 4});
  const Tokens prompt = folder.prompt();
  std::vector<Tokens> texts;
  std::vector<std::vector<float>> wanted;
  for (std::size_t i = 0; i < 3; ++i) {
    texts.emplace_back(prompt.begin() + static_cast<std::ptrdiff_t>(3 * i), prompt.end());
    wanted.push_back(model.score(std::span(texts[i]).first(1), std::span(texts[i]).subspan(1)));
  }
  std::vector<std::thread> threads;
  std::vector<int> right(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 20; ++turn)
        right[i] += model.score(std::span(texts[i]).first(1), std::span(texts[i]).subspan(1)) == wanted[i] ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(texts.size(), 20));
}

TEST(Recurrent, SavesItsCache) {
  for (const char* family : families) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    const test::TempFolder files;
    LanguageModel model = folder.open({.block = 4}), other = folder.open({.block = 4});
    const Tokens prompt = folder.prompt();
    model.continue_tokens(prompt, folder.as_golden());
    const std::int64_t whole = (std::ssize(prompt) - 1) / 4 * 4;
    EXPECT_EQ(model.runner().save_cache(files / "cache.safetensors", prompt), whole);
    EXPECT_EQ(other.runner().load_cache(files / "cache.safetensors"), whole);
    const Generation result = other.continue_tokens(prompt, folder.as_golden());
    EXPECT_EQ(result.reused, whole);
    EXPECT_EQ(result.tokens, folder.continuation());
    EXPECT_EQ(other.runner().load_cache(files / "cache.safetensors"), 0) << "it is there already";
  }
}

// Several answers to one prompt: the others begin where the first one's prompt has its last snapshot.
TEST(Recurrent, ForksShareThePrompt) {
  for (const char* family : families) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model = folder.open({.block = 8});
    Stream first = model.submit(folder.prompt(), folder.as_golden());
    Stream second = model.runner().fork(first, folder.as_golden());
    EXPECT_EQ(second.wait().tokens, folder.continuation());
    EXPECT_EQ(first.wait().tokens, folder.continuation());
    EXPECT_EQ(second.result().reused, (std::ssize(folder.prompt()) - 1) / 8 * 8);
  }
}

}  // namespace
}  // namespace jerboa::language::recurrent_test
