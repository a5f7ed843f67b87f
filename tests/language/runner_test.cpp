#include <atomic>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <thread>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/io/safetensors_writer.h>
#include <jerboa/language/runner.h>
#include <jerboa/ops/ops.h>

#include "language/model_folder.h"
#include "support/expect_error.h"

// Many texts at once: each equals the one that the model generates alone.
namespace jerboa::language::runner_test {
namespace {

using test::decoder_goldens;
using test::expect_error;
using test::greedy;
using test::ModelFolder;
using test::Tokens;

// Beginnings of the golden's prompt.
Tokens beginning(const ModelFolder& folder, std::size_t length) {
  Tokens tokens = folder.prompt();
  tokens.resize(std::min(tokens.size(), length));
  return tokens;
}

GenerateOptions sampled(std::uint64_t seed, int tokens = 12) {
  return {.max_tokens = tokens,
          .sampling = SamplerOptions{.temperature = 0.9f, .top_k = 50, .top_p = 0.95f, .seed = seed}};
}

std::vector<std::pair<Tokens, GenerateOptions>> mixed_requests(const ModelFolder& folder) {
  return {{folder.prompt(), folder.as_golden()}, {beginning(folder, 3), greedy(10)},
          {beginning(folder, 17), sampled(1)},   {beginning(folder, 1), sampled(2)},
          {folder.prompt(), sampled(3, 20)},     {beginning(folder, 9), greedy(30)},
          {beginning(folder, 12), sampled(4)}};
}

TEST(Runner, GeneratesTheSameTextsTogetherAsAlone) {
  for (const std::string& family : test::all_decoder_goldens()) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    // Like a GPU: the device samples, and the next step starts before the last token is read.
    const bool on_device = family == "llama";  // not for all: these programs take longer to compile
    LanguageModel together = folder.open({.block = 8, .device_sampling = on_device, .pipelined = true}),
                  alone = folder.open({.block = 8});
    const auto requests = mixed_requests(folder);
    std::vector<Stream> streams;
    for (const auto& [prompt, options] : requests) streams.push_back(together.submit(prompt, options));
    for (std::size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(streams[i].wait().tokens, alone.continue_tokens(requests[i].first, requests[i].second).tokens) << i;
    EXPECT_EQ(streams[0].result().tokens, folder.continuation());
    EXPECT_GT(together.statistics().mean_batch(), 2);
  }
}

// One block for a whole sequence is a straight cache.
TEST(Runner, WritesTheSameWithBlocksOfAnySize) {
  for (const char* family : decoder_goldens)
    for (const int block : {7, 128}) {
      SCOPED_TRACE(fmt::format("{} in blocks of {}", family, block));
      const ModelFolder folder(family);
      LanguageModel model = folder.open({.block = block});
      EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation());
      // The same again, from the cache.
      const Generation again = model.continue_tokens(folder.prompt(), folder.as_golden());
      EXPECT_EQ(again.tokens, folder.continuation());
      EXPECT_EQ(again.reused, (std::ssize(folder.prompt()) - 1) / block * block);
    }
}

TEST(Runner, ForksEqualFreshTexts) {
  for (const char* family : decoder_goldens) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel model = folder.open({.block = 8}), fresh = folder.open({.block = 8});
    Runner& runner = model.runner();
    Stream first = runner.submit(folder.prompt(), folder.as_golden());
    Stream second = runner.fork(first, sampled(5)), third = runner.fork(first, sampled(6));
    for (int i = 0; i < 7; ++i) first.next();
    // In the middle of a block, which is copied.
    Tokens so_far = folder.prompt();
    const Tokens written = first.result().tokens;
    so_far.insert(so_far.end(), written.begin(), written.end());
    Stream fourth = runner.fork(first, sampled(7));
    EXPECT_EQ(second.wait().tokens, fresh.continue_tokens(folder.prompt(), sampled(5)).tokens);
    EXPECT_EQ(third.wait().tokens, fresh.continue_tokens(folder.prompt(), sampled(6)).tokens);
    EXPECT_EQ(fourth.wait().tokens, fresh.continue_tokens(so_far, sampled(7)).tokens);
    EXPECT_EQ(first.wait().tokens, folder.continuation());
    EXPECT_GE(fourth.result().reused, std::ssize(so_far) - 2) << "it shares all that was computed";
  }
}

// A text that repeats itself, so that drafts succeed.
Tokens repetitive(int vocabulary = 256) {
  Tokens tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i % 5 * 37 + 11) % vocabulary);
  return tokens;
}

TEST(Runner, GuessesDoNotChangeTheText) {
  std::int64_t drafted = 0, accepted = 0, of_all_drafted = 0;
  for (const char* family : decoder_goldens) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModel plain = folder.open(),
                  guessing = folder.open({.device_sampling = std::string(family) == "qwen3_moe"});
    for (const Tokens& prompt : {repetitive(), folder.prompt()})
      for (GenerateOptions options : {greedy(40), sampled(9, 30)}) {
        const Tokens wanted = plain.continue_tokens(prompt, options).tokens;
        options.drafts = 4;
        const Generation result = guessing.continue_tokens(prompt, options);
        EXPECT_EQ(result.tokens, wanted);
        drafted += result.drafted;
        accepted += result.accepted;
      }
    const Statistics statistics = guessing.statistics();
    EXPECT_EQ(statistics.acceptance(), statistics.drafted == 0 ? 0
                                                               : static_cast<double>(statistics.accepted) /
                                                                     static_cast<double>(statistics.drafted));
    of_all_drafted += statistics.drafted;
  }
  EXPECT_EQ(of_all_drafted, drafted);
  EXPECT_GT(drafted, 50);
  EXPECT_GT(accepted, 5);
}

TEST(Runner, SamplesOnTheDeviceAsOnTheHost) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.device_sampling = true}), on_host = folder.open({.device_sampling = false});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Tokens tokens = model.continue_tokens(folder.prompt(), sampled(seed, 30)).tokens;
    EXPECT_EQ(on_host.continue_tokens(folder.prompt(), sampled(seed, 30)).tokens, tokens) << seed;
  }
}

// Penalties and biases too, while the next step begins before the last token is read: no logits come back.
TEST(Runner, PenalisesOnTheDeviceAsOnTheHost) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.sequences = 4, .device_sampling = true, .pipelined = true}),
                on_host = folder.open({.device_sampling = false});
  const std::vector<SamplerOptions> kinds{
      {.temperature = 0, .repetition_penalty = 1.5f},
      {.temperature = 0.9f, .top_k = 50, .presence_penalty = 0.8f, .frequency_penalty = 0.5f, .seed = 4},
      {.temperature = 0, .repetition_penalty = 1.3f, .frequency_penalty = 1, .penalty_window = 6},
      {.temperature = 0, .logit_bias = {{65, 3.0f}, {66, 1.0f}}, .banned_tokens = {10, 32}},
      {.temperature = 0, .penalty_window = 9}};
  std::vector<Stream> streams;
  for (const int drafts : {0, 3})
    for (const SamplerOptions& sampling : kinds)
      streams.push_back(model.submit(repetitive(), {.max_tokens = 24, .sampling = sampling, .drafts = drafts}));
  const Tokens plain = on_host.continue_tokens(repetitive(), greedy(24)).tokens;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    const SamplerOptions& sampling = kinds[i % kinds.size()];
    const Tokens tokens = streams[i].wait().tokens;
    EXPECT_EQ(tokens, on_host.continue_tokens(repetitive(), {.max_tokens = 24, .sampling = sampling}).tokens) << i;
    EXPECT_EQ(tokens == plain, i % kinds.size() + 1 == kinds.size()) << i << ": a penalty changes the text";
  }
  for (const EntryInfo& entry : model.session().entries())
    EXPECT_EQ(entry.name.find("logits"), std::string::npos) << entry.name;
}

// Wherever the tokens are drawn, their log-probabilities are those that score() finds, penalties or not.
TEST(Runner, GivesLogProbabilities) {
  const ModelFolder folder("llama");
  LanguageModel on_device = folder.open({.device_sampling = true, .pipelined = true}),
                on_host = folder.open({.device_sampling = false});
  const GenerateOptions kinds[] = {greedy(12), sampled(3), sampled(4)};
  for (GenerateOptions options : kinds)
    for (const int drafts : {0, 3}) {
      options.logprobs = 4;
      options.drafts = drafts;
      options.sampling->presence_penalty = 0.5f;
      const Generation found = on_device.continue_tokens(repetitive(), options);
      const Generation host = on_host.continue_tokens(repetitive(), options);
      EXPECT_EQ(found.tokens, host.tokens);
      const std::vector<float> wanted = on_host.score(repetitive(), found.tokens);
      ASSERT_EQ(found.logprobs.size(), wanted.size());
      ASSERT_EQ(host.logprobs.size(), wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_NEAR(found.logprobs[i].drawn, wanted[i], 1e-4);
        EXPECT_NEAR(host.logprobs[i].drawn, wanted[i], 1e-4);
        ASSERT_EQ(found.logprobs[i].likeliest.size(), 4u);
        for (std::size_t j = 0; j < 4; ++j) {
          EXPECT_EQ(found.logprobs[i].likeliest[j].first, host.logprobs[i].likeliest[j].first);
          EXPECT_NEAR(found.logprobs[i].likeliest[j].second, host.logprobs[i].likeliest[j].second, 1e-4);
        }
      }
    }
  Stream stream = on_device.submit(repetitive(), {.max_tokens = 2, .logprobs = 0});
  const std::optional<TextPiece> piece = stream.next();
  ASSERT_TRUE(piece && piece->logprobs);
  EXPECT_LT(piece->logprobs->drawn, 0);
  EXPECT_TRUE(piece->logprobs->likeliest.empty());
  expect_error<UsageError>([&] { on_device.submit(repetitive(), {.logprobs = 21}); }, "logprobs is 21");
}

// A text whose sampler throws fails alone; an invalid call fails for its caller, and the others continue.
TEST(Runner, GoesOnAfterAFailure) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.sequences = 1});
  const auto throwing = [start = folder.prompt().size()](const std::function<void()>& fails) {
    GenerateOptions options = greedy(8);
    options.sampler = [fails, start] {
      auto sampler = std::make_unique<Sampler>(SamplerOptions{.temperature = 0});
      sampler->add_processor([fails, start](std::span<float>, std::span<const int> history) {
        if (history.size() > start + 2) fails();
      });
      return sampler;
    };
    return options;
  };
  const Generation failed =
      model.submit(folder.prompt(), throwing([] { throw std::runtime_error("out of ideas"); })).wait();
  EXPECT_EQ(failed.reason, StopReason::failed);
  EXPECT_EQ(failed.error, "out of ideas");

  Stream first = model.submit(folder.prompt(), throwing([] { throw 42; }));
  Stream second = model.submit(folder.prompt(), folder.as_golden());
  std::thread waiting([&] {
    try {
      while (second.next()) continue;
    } catch (int) {
      while (second.next()) continue;
    }
  });
  try {
    first.wait();
  } catch (int) {
  }
  waiting.join();
  EXPECT_EQ(first.result().reason, StopReason::failed);
  EXPECT_EQ(second.result().tokens, folder.continuation());
}

// One program for every token: other texts in the batch, or in the cache, do not change a bit.
TEST(Runner, DeterministicTextsDoNotDependOnTheBatch) {
  for (const char* family : {"llama", "gemma2", "qwen3_moe", "mamba2", "qwen3_next"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    const LanguageModelOptions options{.sequences = 8, .block = 8, .deterministic = true};
    LanguageModel together = folder.open(options), alone = folder.open(options);
    const auto logits_of = [&](LanguageModel& model, const Tokens& prompt) {
      std::vector<float> all;
      GenerateOptions recording{.max_tokens = 12};
      recording.sampler = [&] {
        auto sampler = std::make_unique<Sampler>(SamplerOptions{.seed = 3});
        sampler->add_processor([&](std::span<float> logits, std::span<const int>) {
          all.insert(all.end(), logits.begin(), logits.end());
        });
        return sampler;
      };
      model.continue_tokens(prompt, recording);
      return all;
    };
    const std::vector<float> wanted = logits_of(alone, folder.prompt());
    std::vector<Stream> others;
    for (const auto& [prompt, request] : mixed_requests(folder)) others.push_back(together.submit(prompt, request));
    EXPECT_EQ(logits_of(together, folder.prompt()), wanted);
    for (Stream& other : others) other.wait();
    EXPECT_EQ(logits_of(together, folder.prompt()), wanted) << "from the cache";
  }
}

// Together, forked in the middle of a block and from the cache: an 8-bit cache always holds the same bits.
TEST(Runner, CachesIn8BitsServeEveryText) {
  for (const char* family : {"llama", "gemma2", "qwen3_moe", "deepseek_v3"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    LanguageModelOptions options{.sequences = 8, .block = 8, .cache = DType::i8, .deterministic = true};
    LanguageModel together = folder.open(options), alone = folder.open(options);
    const auto requests = mixed_requests(folder);
    std::vector<Stream> streams;
    for (const auto& [prompt, request] : requests) streams.push_back(together.submit(prompt, request));
    for (int i = 0; i < 7; ++i) streams[0].next();
    Tokens so_far = folder.prompt();
    const Tokens written = streams[0].result().tokens;
    so_far.insert(so_far.end(), written.begin(), written.end());
    Stream forked = together.runner().fork(streams[0], sampled(7));
    EXPECT_EQ(forked.wait().tokens, alone.continue_tokens(so_far, sampled(7)).tokens);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Tokens wanted = alone.continue_tokens(requests[i].first, requests[i].second).tokens;
      EXPECT_EQ(streams[i].wait().tokens, wanted) << i;
      const Generation again = together.continue_tokens(requests[i].first, requests[i].second);
      EXPECT_EQ(again.tokens, wanted) << i << " from the cache";
    }
    EXPECT_GT(together.statistics().reused, 0);
    options.cache = DType::f32;
    LanguageModel wide = folder.open(options);
    const double ratio =
        static_cast<double>(together.statistics().cache_bytes) / static_cast<double>(wide.statistics().cache_bytes);
    EXPECT_LT(ratio, 0.55) << "of the same number of tokens";  // latent vectors are f16
  }
}

TEST(Runner, GuessesOverCachesIn8BitsDoNotChangeTheText) {
  const ModelFolder folder("llama");
  LanguageModel plain = folder.open({.cache = DType::i8}), guessing = folder.open({.cache = DType::i8});
  GenerateOptions options = greedy(40);
  const Tokens wanted = plain.continue_tokens(repetitive(), options).tokens;
  options.drafts = 4;
  const Generation result = guessing.continue_tokens(repetitive(), options);
  EXPECT_EQ(result.tokens, wanted);
  EXPECT_GT(result.accepted, 0);
}

TEST(Runner, PollsWithoutWaiting) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open();
  EXPECT_FALSE(model.poll(1));
  Stream first = model.submit(folder.prompt(), folder.as_golden()),
         second = model.submit(beginning(folder, 4), greedy(5));
  EXPECT_FALSE(first.take());
  int polls = 0;
  Tokens tokens;
  while (model.poll(0)) {
    ++polls;
    while (const auto piece = first.take())
      if (piece->token) tokens.push_back(*piece->token);
  }
  while (const auto piece = first.take())
    if (piece->token) tokens.push_back(*piece->token);
  EXPECT_GE(polls, 20) << "a budget of nothing is one step";
  EXPECT_EQ(tokens, folder.continuation());
  EXPECT_TRUE(first.ended() && second.ended());
  EXPECT_EQ(second.result().tokens.size(), 5u);
}

TEST(Runner, ServesSeveralThreads) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.block = 8}), alone = folder.open();
  std::vector<Tokens> wanted;
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    wanted.push_back(alone.continue_tokens(folder.prompt(), sampled(seed, 20)).tokens);
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < 4; ++turn)
        right += model.continue_tokens(folder.prompt(), sampled(i, 20)).tokens == wanted[i] ? 1 : 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 24);
}

TEST(Runner, EndsTextsThatAreCancelledOrLate) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open();
  Stream cancelled = model.submit(folder.prompt(), folder.as_golden());
  Stream kept = model.submit(folder.prompt(), folder.as_golden());
  { const Stream dropped = model.submit(folder.prompt(), folder.as_golden()); }
  for (int i = 0; i < 3; ++i) cancelled.next();
  cancelled.cancel();
  EXPECT_EQ(cancelled.wait().reason, StopReason::cancelled);
  EXPECT_GE(cancelled.result().tokens.size(), 3u);
  GenerateOptions late = greedy(100);
  late.seconds = 0;
  EXPECT_EQ(model.continue_tokens(folder.prompt(), late).reason, StopReason::deadline);
  EXPECT_EQ(kept.wait().tokens, folder.continuation());
  EXPECT_FALSE(model.poll(0));
}

// The code of docs/language-models.md.
TEST(Runner, FollowsTheGuide) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open();
  const std::string_view prompt = "Hello", other_prompt = "Once upon a time";
  std::string text;
  language::Stream first = model.submit(prompt, {.max_tokens = 8});
  language::Stream second = model.submit(other_prompt, {.max_tokens = 8, .seconds = 60});
  language::Stream again = model.runner().fork(first, {.max_tokens = 8, .sampling = SamplerOptions{.seed = 2}});
  while (const std::optional<TextPiece> piece = first.next()) text += piece->text;
  const Generation other = second.wait();
  again.cancel();
  EXPECT_EQ(text, first.result().text);
  EXPECT_LE(other.tokens.size(), 8u);
  EXPECT_TRUE(again.ended());
}

// Texts that need more than the cache together take turns; only one that never fits is refused.
TEST(Runner, MakesDoWithASmallCache) {
  const ModelFolder folder("llama");
  LanguageModel model = folder.open({.context = 64, .sequences = 4, .cache_tokens = 72, .block = 8});
  std::vector<Stream> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(model.submit(folder.prompt(), folder.as_golden()));
  expect_error<UsageError>([&] { model.submit(Tokens(65, 1), greedy(4)); }, "65 tokens exceed the context of 64");
  for (Stream& stream : streams) EXPECT_EQ(stream.wait().tokens, folder.continuation());
  EXPECT_EQ(model.statistics().refused, 1);
  expect_error<UsageError>(
      [&] {
        const ReservedBlocks all = model.runner().reserve(72);
        model.runner().reserve(8);
      },
      "the cache has no room for 8 tokens");
}

// Blocks before the windows of all layers are released to other texts, which are the same as alone.
TEST(Runner, ReleasesBlocksBeforeTheWindow) {
  const ModelFolder folder("mistral");
  LanguageModelOptions options{.context = 64, .sequences = 4, .cache_tokens = 96, .block = 4, .deterministic = true};
  LanguageModel together = folder.open(options);
  options.cache_tokens = 0;
  LanguageModel alone = folder.open(options);
  const auto prompt_of = [&](int i) {
    Tokens prompt = folder.prompt();
    prompt.front() = 10 + i;
    return prompt;
  };
  const int length = 60 - static_cast<int>(folder.prompt().size());
  std::vector<Stream> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(together.submit(prompt_of(i), greedy(length)));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(streams[static_cast<std::size_t>(i)].wait().tokens,
              alone.continue_tokens(prompt_of(i), greedy(length)).tokens)
        << i;
  EXPECT_EQ(together.statistics().preempted, 0) << "four texts of 60 tokens in a cache of 96";
}

// Models in which some layers have windows, with fewer blocks for these than a text has, compared with a cache that is
// a single block per text.
TEST(Runner, KeepsOnlyVisibleBlocksOfLayersWithWindows) {
  std::int64_t preempted = 0;
  for (const char* family : {"cohere2", "exaone4", "gemma2", "gemma3_text", "gemma4_text", "gpt_oss", "olmo3"}) {
    SCOPED_TRACE(family);
    const ModelFolder folder(family);
    const test::TempFolder files;
    const LanguageModelOptions options{.context = 128, .chunk = 4, .sequences = 3, .block = 4};
    LanguageModel model = folder.open(options), whole = folder.open({.context = 128, .chunk = 4, .block = 128});
    const CacheSize& cache = model.model().cache();
    ASSERT_EQ(cache.windowed.size(), 1u);
    EXPECT_LT(cache.windowed[0].blocks, cache.blocks / 3);
    const Tokens prompt = folder.prompt(), other = beginning(folder, 9);
    const int length = 110 - static_cast<int>(prompt.size());
    const Tokens wanted = whole.continue_tokens(prompt, greedy(length)).tokens;
    const Tokens wanted_too = whole.continue_tokens(other, sampled(3, 60)).tokens;
    // Together, a fork, guesses, from the cache, and after preemption.
    Stream first = model.submit(prompt, greedy(length)), second = model.submit(other, sampled(3, 60));
    for (int i = 0; i < 7; ++i) first.next();
    Stream fork = model.runner().fork(first, greedy(length - 7));
    EXPECT_EQ(first.wait().tokens, wanted);
    EXPECT_EQ(second.wait().tokens, wanted_too);
    EXPECT_EQ(fork.wait().tokens,
              Tokens(wanted.begin() + std::ssize(wanted) - std::ssize(fork.result().tokens), wanted.end()));
    GenerateOptions guessing = greedy(length);
    guessing.drafts = 3;
    EXPECT_EQ(model.continue_tokens(prompt, guessing).tokens, wanted);
    const Generation again = model.continue_tokens(prompt, greedy(length));
    EXPECT_EQ(again.tokens, wanted);
    EXPECT_EQ(again.reused, (std::ssize(prompt) - 1) / 4 * 4) << "where its prompt ended";
    LanguageModel small = folder.open({.context = 128, .chunk = 4, .sequences = 8, .cache_tokens = 132, .block = 4});
    std::vector<Stream> crowd;
    std::vector<Tokens> prompts(3, prompt);
    for (int i = 0; i < 3; ++i) prompts[static_cast<std::size_t>(i)].front() = 10 + i;
    for (const Tokens& each : prompts) crowd.push_back(small.submit(each, greedy(length)));
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(crowd[i].wait().tokens, whole.continue_tokens(prompts[i], greedy(length)).tokens) << i;
    preempted += small.statistics().preempted;
    // A cache in a file, and reserved texts.
    Tokens text = prompt;
    text.insert(text.end(), wanted.begin(), wanted.end());
    LanguageModelOptions pipelined = options;
    pipelined.pipelined = true;
    LanguageModel loaded = folder.open(pipelined);
    const std::int64_t saved = model.runner().save_cache(files / "cache.safetensors", prompt);
    EXPECT_EQ(saved, std::ssize(prompt) / 4 * 4);
    EXPECT_EQ(loaded.runner().load_cache(files / "cache.safetensors"), saved);
    const Generation from_file = loaded.continue_tokens(prompt, greedy(length));
    EXPECT_EQ(from_file.tokens, wanted);
    EXPECT_EQ(from_file.reused, (std::ssize(prompt) - 1) / 4 * 4);
    EXPECT_NEAR(loaded.perplexity(text).value, whole.perplexity(text).value, 1e-3);
  }
  EXPECT_GT(preempted, 3);
}

// Whether or not other texts have filled the cache before, and whether or not the text ends with a block: if it does,
// its last token, which is always computed, is before the end of the loaded blocks.
TEST(Runner, LoadsCachesOfLayersWithWindowsBesideOtherTexts) {
  for (const char* family : {"gemma2", "gpt_oss"})
    for (const std::size_t length : {60, 62}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens", family, length));
      const ModelFolder folder(family);
      const test::TempFolder files;
      const LanguageModelOptions options{.context = 128, .chunk = 4, .sequences = 2, .cache_tokens = 512, .block = 4};
      LanguageModel model = folder.open(options), used = folder.open(options);
      Tokens text = folder.prompt();
      while (text.size() < length) text.push_back(5 + static_cast<std::int32_t>(text.size()) % 40);
      text.resize(length);
      const Tokens wanted = model.continue_tokens(text, greedy(20)).tokens;
      EXPECT_EQ(model.runner().save_cache(files / "cache.safetensors", text), 60);
      for (std::int32_t i = 0; i < 30; ++i) {
        Tokens other = folder.prompt();
        other[0] = 10 + i;
        used.continue_tokens(other, greedy(3));
      }
      EXPECT_EQ(used.runner().load_cache(files / "cache.safetensors"), 60);
      EXPECT_EQ(used.runner().load_cache(files / "cache.safetensors"), 0) << "it is there already";
      const Generation result = used.continue_tokens(text, greedy(20));
      EXPECT_EQ(result.reused, (std::ssize(text) - 1) / 4 * 4);
      EXPECT_EQ(result.tokens, wanted);
    }
}

TEST(Runner, LoadsNothingThatNoTextCouldContinue) {
  const ModelFolder folder("gemma2");
  const test::TempFolder files;
  const LanguageModelOptions options{.context = 128, .chunk = 4, .sequences = 1, .block = 4};
  LanguageModel model = folder.open(options), used = folder.open(options);
  model.continue_tokens(folder.prompt(), greedy(1));
  EXPECT_GT(model.runner().save_cache(files / "cache.safetensors", folder.prompt()), 0);
  const ReservedBlocks blocks = used.runner().reserve(40);
  const int before = used.statistics().used_blocks;
  EXPECT_EQ(used.runner().load_cache(files / "cache.safetensors"), 0);
  EXPECT_EQ(used.statistics().used_blocks, before);
}

// The format of older files, before layers with windows kept less: all blocks of all layers.
TEST(Runner, LoadsCachesThatHaveAllBlocksOfLayersWithWindows) {
  const ModelFolder folder("gemma2");
  const test::TempFolder files;
  const LanguageModelOptions options{.context = 128, .chunk = 4, .sequences = 2, .cache_tokens = 512, .block = 4};
  LanguageModel model = folder.open(options), other = folder.open(options);
  const Tokens prompt = folder.prompt();
  const Tokens wanted = model.continue_tokens(prompt, greedy(12)).tokens;
  const std::int64_t saved = model.runner().save_cache(files / "cache.safetensors", prompt), count = saved / 4;
  const SafeTensors file = SafeTensors::open(files / "cache.safetensors");
  std::vector<TensorView> views;
  std::vector<std::vector<std::byte>> longer;
  for (const std::string& name : file.names()) {
    TensorView view = file.view(name);
    if (view.shape.size() == 4 && view.shape[0] < count) {
      const std::size_t row = view.bytes.size() / static_cast<std::size_t>(view.shape[0]);
      std::vector<std::byte>& all = longer.emplace_back(row * static_cast<std::size_t>(count));
      std::copy(view.bytes.begin(), view.bytes.end(), all.end() - std::ssize(view.bytes));
      view.shape[0] = count;
      view.bytes = all;
    }
    views.push_back(view);
  }
  EXPECT_EQ(longer.size(), 2u) << "keys and values of one layer";
  write_safetensors(files / "all.safetensors", views, file.metadata());
  EXPECT_EQ(other.runner().load_cache(files / "all.safetensors"), saved);
  const Generation result = other.continue_tokens(prompt, greedy(12));
  EXPECT_EQ(result.reused, (std::ssize(prompt) - 1) / 4 * 4);
  EXPECT_EQ(result.tokens, wanted);
}

// A reserved text has all blocks of layers with windows, so that the text to generate has to wait.
class RunnerWithoutRoom : public ::testing::Test {
 protected:
  RunnerWithoutRoom() {
    while (long_text_.size() < 40) long_text_.push_back(5 + static_cast<std::int32_t>(long_text_.size()) % 40);
  }
  Generation write(double seconds = 0) {
    GenerateOptions options = greedy(10);
    if (seconds > 0) options.seconds = seconds;
    return model_.continue_tokens(folder_.prompt(), options);
  }

  const ModelFolder folder_{"gemma2"};
  const LanguageModelOptions options_{.context = 128, .chunk = 4, .sequences = 1, .block = 4};
  LanguageModel model_ = folder_.open(options_);
  const Tokens wanted_ = folder_.open(options_).continue_tokens(folder_.prompt(), greedy(10)).tokens;
  Tokens long_text_;
};

TEST_F(RunnerWithoutRoom, TextsWaitForThoseThatAreScored) {
  std::vector<std::thread> writers;
  std::atomic<int> right = 0;
  const auto start_writers = [&](std::int64_t) {
    const std::int64_t submitted = model_.statistics().submitted;
    for (int i = 0; i < 2; ++i) writers.emplace_back([&] { right += write().tokens == wanted_ ? 1 : 0; });
    while (model_.statistics().submitted < submitted + 2) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // so that they wait
  };
  model_.perplexity(long_text_, start_writers);
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(right, 2);

  const std::function<void()> uses[] = {[&] { model_.score(folder_.prompt(), long_text_); },
                                        [&] { model_.logits(long_text_); },
                                        [&] { model_.embed(long_text_, models::Pooling::mean); }};
  for (const auto& use : uses) {
    std::thread writer([&] { right += write().tokens == wanted_ ? 1 : 0; });
    for (bool is_done = false; !is_done;) try {
        use();
        is_done = true;
      } catch (const UsageError&) {  // the text has the blocks
        std::this_thread::yield();
      }
    writer.join();
  }
  EXPECT_EQ(right, 5);
}

TEST_F(RunnerWithoutRoom, StatisticsShowTheLayersThatHaveNone) {
  for (int i = 0; i < 3; ++i) write();
  Statistics statistics = model_.statistics();
  ASSERT_EQ(statistics.windowed.size(), 1u);
  EXPECT_EQ(statistics.windowed[0].window, 8);
  EXPECT_EQ(statistics.windowed[0].blocks, model_.model().cache().windowed[0].blocks);
  EXPECT_EQ(statistics.windowed[0].used, statistics.windowed[0].cached);
  EXPECT_EQ(statistics.windowed[0].peak, statistics.windowed[0].blocks);
  EXPECT_GT(statistics.windowed[0].evictions, 0);
  EXPECT_EQ(statistics.evictions, 0) << "the other layers have room";
  EXPECT_EQ(statistics.cache_usage(), 0);
  const ReservedBlocks blocks = model_.runner().reserve(40);
  statistics = model_.statistics();
  EXPECT_LT(2 * (statistics.used_blocks - statistics.cached_blocks), statistics.cache_blocks);
  EXPECT_EQ(statistics.cache_usage(), 1);
  const std::string line = fmt::format("{0} of {0} blocks of window 8 in use, 0 kept", statistics.windowed[0].blocks);
  EXPECT_NE(print(statistics).find(line), std::string::npos) << print(statistics);
}

TEST_F(RunnerWithoutRoom, TextsEndByTheirDeadlines) {
  std::optional<ReservedBlocks> blocks(model_.runner().reserve(40));
  EXPECT_EQ(write(0.01).reason, StopReason::deadline);
  Stream stream = model_.submit(folder_.prompt(), greedy(10));
  EXPECT_TRUE(model_.poll(0.01));
  EXPECT_FALSE(stream.take().has_value());
  blocks.reset();
  EXPECT_EQ(stream.wait().tokens, wanted_);
}

// Another thread may release blocks, and asking for a second state is refused instead of waiting forever.
TEST(Runner, ReservesOneRecurrentStateAtATime) {
  const ModelFolder folder("mamba2");
  LanguageModel model = folder.open();
  std::optional<ReservedBlocks> blocks(model.runner().reserve(8));
  expect_error<UsageError>([&] { model.runner().reserve(8); },
                           "this thread has blocks of the cache for a text already");
  std::thread other([&] { const ReservedBlocks waited = model.runner().reserve(8); });
  std::thread giver([held = std::move(*blocks)]() mutable { const ReservedBlocks gone = std::move(held); });
  giver.join();
  other.join();
  EXPECT_NO_THROW(model.runner().reserve(8));
}

// As if one matrix had been trained a little more.
void change_matrix(const ModelFolder& folder) {
  const SafeTensors file = SafeTensors::open(folder.path());
  std::map<std::string, std::vector<float>> values;
  std::vector<TensorView> views;
  for (const std::string& name : file.names()) {
    auto& copy = values[name] = to_f32(file.view(name));
    if (name.ends_with("layers.1.mlp.up_proj.weight"))
      for (float& value : copy) value *= 1.01F;
    views.push_back(view_of(name, file.view(name).shape, std::span<const float>(copy)));
  }
  write_safetensors(folder.path() / "model.safetensors", views);
}

TEST(Runner, SavesItsCache) {
  const ModelFolder folder("llama");
  const test::TempFolder files;
  LanguageModel model = folder.open({.block = 4}), other = folder.open({.block = 4});
  const Tokens prompt = folder.prompt();
  model.continue_tokens(prompt, folder.as_golden());
  EXPECT_EQ(model.runner().save_cache(files / "cache.safetensors", prompt), std::ssize(prompt) / 4 * 4);
  EXPECT_EQ(other.runner().load_cache(files / "cache.safetensors"), std::ssize(prompt) / 4 * 4);
  const Generation result = other.continue_tokens(prompt, folder.as_golden());
  EXPECT_EQ(result.reused, (std::ssize(prompt) - 1) / 4 * 4);
  EXPECT_EQ(result.tokens, folder.continuation());
  EXPECT_EQ(other.runner().load_cache(files / "cache.safetensors"), 0) << "it is there already";

  const auto refused = [&](LanguageModel loaded, const std::string& message) {
    expect_error<FileError>([&] { loaded.runner().load_cache(files / "cache.safetensors"); }, message);
  };
  refused(ModelFolder("qwen3").open({.block = 4}), "saved with another model");
  const ModelFolder trained("llama"), slower("llama");
  change_matrix(trained);
  refused(trained.open({.block = 4}), "saved with another model");
  auto config = nlohmann::json::parse(test::read_text(slower.path() / "config.json"));
  config["rope_parameters"]["rope_theta"] = 20000;
  slower.write("config.json", config.dump());
  refused(slower.open({.block = 4}), "saved with another model");
  refused(folder.open({.block = 8}), "load the model with the");
  refused(folder.open({.block = 4, .cache = DType::f16}), "load the model with the options");
  LanguageModel narrow = folder.open({.block = 4, .cache = DType::i8, .deterministic = true}),
                narrow_too = folder.open({.block = 4, .cache = DType::i8, .deterministic = true});
  refused(folder.open({.block = 4, .cache = DType::i8}), "load the model with the options");
  const Tokens written = narrow.continue_tokens(prompt, folder.as_golden()).tokens;
  EXPECT_EQ(narrow.runner().save_cache(files / "narrow.safetensors", prompt), std::ssize(prompt) / 4 * 4);
  EXPECT_EQ(narrow_too.runner().load_cache(files / "narrow.safetensors"), std::ssize(prompt) / 4 * 4);
  EXPECT_EQ(narrow_too.continue_tokens(prompt, folder.as_golden()).tokens, written);
  test::write_text(files / "cache.safetensors", "not one");
  refused(folder.open(), "cache.safetensors");
}

TEST(Runner, SavesNothingAsWell) {
  const ModelFolder folder("gemma2");
  const test::TempFolder files;
  LanguageModel model = folder.open({.context = 128, .block = 4});
  EXPECT_EQ(model.runner().save_cache(files / "empty.safetensors", folder.prompt()), 0);
  EXPECT_EQ(model.runner().load_cache(files / "empty.safetensors"), 0);
}

// Blocks that were never filled would be mistaken for those of the text.
TEST(Runner, ForgetsACacheThatCouldNotBeLoaded) {
  const ModelFolder folder("llama");
  const test::TempFolder files;
  const Tokens prompt = folder.prompt();
  LanguageModel model = folder.open({.block = 4});
  model.continue_tokens(prompt, folder.as_golden());
  model.runner().save_cache(files / "cache.safetensors", prompt);
  LanguageModel other = folder.open({.block = 4});
  // Filling the blocks fails, because this entry expects other inputs.
  other.session().add_entry(
      "write blocks", forward_graph({{"x", {1}, DType::f32}}, [](const Inputs& in) { return in["x"] + in["x"]; }));
  EXPECT_THROW(other.runner().load_cache(files / "cache.safetensors"), Error);
  const Generation result = other.continue_tokens(prompt, folder.as_golden());
  EXPECT_EQ(result.reused, 0);
  EXPECT_EQ(result.tokens, folder.continuation());
}

TEST(Runner, CountsItsWork) {
  const ModelFolder folder("llama");
  const test::TempFolder files;
  LanguageModel model = folder.open({.block = 8});
  expect_error<UsageError>([&] { model.runner().write_trace(files / "trace.json"); }, "call start_trace");
  model.runner().start_trace();
  std::vector<Tokens> hooked;
  GenerateOptions options = folder.as_golden();
  options.on_token = [&](const TextPiece& piece) {
    EXPECT_GT(piece.seconds, 0);
    hooked.push_back({*piece.token});
  };
  const std::size_t length = model.continue_tokens(folder.prompt(), options).tokens.size();
  EXPECT_EQ(hooked.size(), length);
  {
    Stream stepwise = model.submit(folder.prompt(), options);
    stepwise.next();
    EXPECT_EQ(hooked.size(), length + 1) << "whoever reads the text";
    while (!stepwise.ended()) model.poll(0);
    while (stepwise.take()) continue;
    EXPECT_EQ(hooked.size(), 2 * length);
  }
  Stream first = model.submit(folder.prompt(), folder.as_golden()),
         second = model.submit(folder.prompt(), folder.as_golden());
  first.wait();
  second.wait();
  const Statistics statistics = model.statistics();
  EXPECT_EQ(statistics.submitted, 4);
  EXPECT_EQ(statistics.texts, 4);
  EXPECT_EQ(statistics.generated, static_cast<std::int64_t>(4 * length));
  EXPECT_GT(statistics.tokens_per_second(), 0);
  EXPECT_GT(statistics.first_token_seconds, 0);
  EXPECT_GE(statistics.longest_first_token_seconds, statistics.first_token_seconds);
  EXPECT_NEAR(statistics.hit_rate(), 0.6, 0.3);
  EXPECT_GT(statistics.mean_batch(), 1);
  EXPECT_GT(statistics.dispatches_per_token(), 5);
  EXPECT_GT(statistics.weight_bytes, 4 * model.parameters() - 1);
  EXPECT_GT(statistics.activation_bytes, 0);
  EXPECT_EQ(statistics.used_blocks, statistics.cached_blocks);
  EXPECT_NE(print(statistics).find("tokens/s"), std::string::npos);

  model.runner().write_trace(files / "trace.json");
  const auto trace = nlohmann::json::parse(test::read_text(files / "trace.json"));
  int steps = 0, answers = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_GE(event.at("dur").get<double>(), 0);
    steps += event.at("cat") == "step" ? 1 : 0;
    answers += event.at("name") == "answer" ? 1 : 0;
  }
  EXPECT_EQ(steps, statistics.steps);
  EXPECT_EQ(answers, 4);
}

TEST(Runner, IsTheOnlyOneOfAModel) {
  const ModelFolder folder("llama");
  const auto model = Model::load(folder.path(), {.device = Device::cpu(1)});
  {
    Runner runner(model);
    expect_error<UsageError>([&] { const Runner second(model); }, "belongs to another runner");
  }
  Runner next(model);
  EXPECT_EQ(next.submit(folder.prompt(), folder.as_golden()).wait().tokens, folder.continuation());
}

}  // namespace
}  // namespace jerboa::language::runner_test
