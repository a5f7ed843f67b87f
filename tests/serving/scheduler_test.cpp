#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/generate/constraint.h>
#include <jerboa/serving/scheduler.h>

#include "serving/fake_model.h"
#include "support/expect_error.h"

namespace jerboa::serving::test {
namespace {

using jerboa::test::expect_error;
using Tokens = std::vector<std::int32_t>;

Tokens prompt_of(int size, std::int32_t first = 1) {
  Tokens out(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = (first + static_cast<std::int32_t>(i)) % (vocabulary - 1) + 1;
  return out;
}

SequenceOptions greedy(int max_tokens) {
  SequenceOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0;
  return options;
}

// Drives a scheduler with the model, one step at a time or until nothing is left.
class Host {
 public:
  explicit Host(const SchedulerOptions& options) : options_(options), scheduler(options), device_(options, 1) {}

  Step next() {
    std::optional<Step> step = scheduler.next(now);
    EXPECT_TRUE(step.has_value());
    if (!step) return {};
    device_.submit(*step);
    return std::move(*step);
  }
  void complete(const Step& step) { take(scheduler.complete(step, device_.wait(), now)); }
  Step step() {
    Step out = next();
    complete(out);
    return out;
  }
  void run() {
    std::deque<Step> submitted;
    while (scheduler.has_work()) {
      now += 1;
      while (std::optional<Step> step = scheduler.next(now)) {
        device_.submit(*step);
        submitted.push_back(std::move(*step));
        ++steps;
      }
      take(scheduler.take_events());
      if (submitted.empty()) continue;
      complete(submitted.front());
      submitted.pop_front();
    }
    for (; !submitted.empty(); submitted.pop_front()) complete(submitted.front());
  }
  void take(const std::vector<Event>& events) {
    for (const Event& event : events) {
      if (event.token) texts[event.id].tokens.push_back(*event.token);
      streams[event.id] += event.text;
      if (!event.finished) continue;
      texts[event.id].reason = *event.finished;
      ends[event.id] = event;
    }
  }
  Text alone(const Tokens& prompt, const SequenceOptions& options) const {
    return write_alone(prompt, options, false, scheduler.context(), options_.state_slots > 0, windows_of(options_));
  }

 private:
  SchedulerOptions options_;

 public:
  Scheduler scheduler;
  FakeDevice& device() { return device_; }
  std::map<SequenceId, Text> texts;
  std::map<SequenceId, std::string> streams;
  std::map<SequenceId, Event> ends;
  double now = 1;
  int steps = 0;

 private:
  FakeDevice device_;
};

TEST(Scheduler, RefusesPromptsThatCanNeverFitAndGoesOn) {
  Host host({.blocks = 4, .block_size = 4, .vocabulary = vocabulary});
  const SequenceId id = host.scheduler.add(prompt_of(5), greedy(3), 0);
  const auto refused = [&](const Tokens& prompt, const SequenceOptions& options, const char* why) {
    expect_error<UsageError>([&] { host.scheduler.add(prompt, options, 0); }, why);
  };
  refused(prompt_of(17), greedy(3), "17 tokens exceed the context of 16");
  refused({}, greedy(3), "at least one token");
  refused({1, vocabulary}, greedy(3), "there is no token 12; the model has 12");
  refused({1}, greedy(0), "max_tokens is 0");
  SequenceOptions stop = greedy(1);
  stop.stop = {"x"};
  refused({1}, stop, "stop strings need a text stream");
  SequenceOptions cold = greedy(1);
  cold.sampling.temperature = -1;
  refused({1}, cold, "temperature");
  EXPECT_EQ(host.scheduler.statistics().refused, 6);
  host.run();
  EXPECT_EQ(host.texts[id], host.alone(prompt_of(5), greedy(3)));
}

TEST(Scheduler, ChecksItsOptions) {
  expect_error<UsageError>([] { Scheduler({.chunk = 0}); }, "chunk is 0");
  expect_error<UsageError>([] { Scheduler({.chunk = 8, .mixed_time = 9}); },
                           "mixed_time is 9, but must be from 0 to chunk");
  expect_error<UsageError>(
      [] {
        Scheduler({.max_rows = 8, .row_buckets = {1, 4}});
      },
      "row_buckets must ascend from at least 1 to at least 8, not be 1, 4");
  expect_error<UsageError>([] { Scheduler({.chunk = 8, .time_buckets = {4, 1, 8}}); }, "time_buckets");
  expect_error<UsageError>([] { Scheduler({.windowed = {{0, 4}}}); }, "windowed.window is 0");
  expect_error<UsageError>(
      [] {
        Scheduler({.windowed = {{4, 4}}, .state_slots = 2});
      },
      "state_slots is 2, but must be 0 with a window");
}

// Three texts of 28 tokens each in a cache of 40.
TEST(Scheduler, ReleasesBlocksBeforeTheWindow) {
  const auto preemptions = [](int window) {
    Host host({.blocks = 10, .block_size = 4, .max_rows = 4, .chunk = 4, .pipelined = true, .window = window});
    std::map<SequenceId, Tokens> prompts;
    for (const std::int32_t first : {1, 4, 7}) {
      const Tokens prompt = prompt_of(4, first);
      prompts[host.scheduler.add(prompt, greedy(24), 0)] = prompt;
    }
    host.run();
    for (const auto& [id, prompt] : prompts) EXPECT_EQ(host.texts[id], host.alone(prompt, greedy(24)));
    host.scheduler.clear_prefixes();
    EXPECT_EQ(host.scheduler.pool().used_blocks(), 0);
    return host.scheduler.statistics().preemptions;
  };
  EXPECT_GT(preemptions(0), 0);
  EXPECT_GT(preemptions(28), 0) << "nothing lies before such a window";
  EXPECT_EQ(preemptions(4), 0);
}

// Three groups of layers: one sees everything, two have windows.
SchedulerOptions with_windows(int blocks = 64) {
  SchedulerOptions options{.blocks = blocks, .block_size = 4, .max_rows = 4, .chunk = 4, .pipelined = false};
  for (const int window : {6, 11}) options.windowed.push_back({window, most_windowed_blocks(options, window)});
  return options;
}

TEST(Scheduler, LayersWithWindowsKeepOnlyVisibleBlocks) {
  Host host(with_windows());
  const SequenceId id = host.scheduler.add(prompt_of(30), greedy(150), 0);
  const auto held = [&](std::size_t group) { return host.scheduler.find(id)->place.windowed[group].held(); };
  while (host.texts[id].tokens.size() < 120) {
    host.step();
    for (const std::size_t group : {0u, 1u})
      EXPECT_LE(held(group), host.scheduler.windowed_pool(group).blocks()) << host.texts[id].tokens.size();
  }
  // The blocks visible from position 148, the end of the last whole block: from 143 and 138 on, in blocks of 4.
  EXPECT_EQ(host.scheduler.find(id)->place.table.blocks().size(), 38u);
  EXPECT_EQ(held(0), 3);
  EXPECT_EQ(held(1), 4);
  EXPECT_EQ(host.scheduler.statistics().preemptions, 0);
  host.run();
  EXPECT_EQ(host.texts[id], host.alone(prompt_of(30), greedy(150)));
}

// The blocks of layers with windows are too few for all, those of the others are not.
TEST(Scheduler, WindowsDecideWhoRuns) {
  SchedulerOptions options = with_windows();
  Host host(options);
  std::map<SequenceId, Tokens> prompts;
  for (const std::int32_t first : {1, 4, 7}) {
    const Tokens prompt = prompt_of(9, first);
    prompts[host.scheduler.add(prompt, greedy(24), 0)] = prompt;
  }
  host.step();
  EXPECT_EQ(host.scheduler.running(), 1u);
  EXPECT_EQ(host.scheduler.waiting(), 2u);
  host.run();
  for (const auto& [id, prompt] : prompts) EXPECT_EQ(host.texts[id], host.alone(prompt, greedy(24)));
}

// A prefix can be continued where the blocks in its windows are cached, even if earlier ones are not.
TEST(Scheduler, ContinuesPrefixesWhereWindowsAreCached) {
  SchedulerOptions options = with_windows();
  for (WindowedLayers& layers : options.windowed) layers.blocks += 2;
  Host host(options);
  const Tokens prompt = prompt_of(60);
  host.scheduler.add(prompt, greedy(1), 0);
  host.run();
  EXPECT_EQ(host.scheduler.prefixes().blocks(), 15);
  EXPECT_LT(host.scheduler.prefixes().reclaimable_windowed(0), 15);
  Tokens longer = prompt;
  longer.push_back(3);
  const SequenceId second = host.scheduler.add(longer, greedy(9), 0);
  host.run();
  EXPECT_EQ(host.ends[second].statistics.reused, 60);
  EXPECT_EQ(host.texts[second], host.alone(longer, greedy(9)));
  // Blocks in the middle were evicted, so a text that diverges there starts from the beginning.
  Tokens other(prompt.begin(), prompt.begin() + 20);
  other.push_back(5);
  const SequenceId third = host.scheduler.add(other, greedy(9), 0);
  host.run();
  EXPECT_EQ(host.ends[third].statistics.reused, 0);
  EXPECT_EQ(host.texts[third], host.alone(other, greedy(9)));
  const SequenceId fourth = host.scheduler.add(other, greedy(9), 0);
  host.run();
  EXPECT_EQ(host.ends[fourth].statistics.reused, 20) << "it has put them there again";
  EXPECT_EQ(host.texts[fourth], host.alone(other, greedy(9)));
}

TEST(Scheduler, ForksAndCopiesBlocksOfWindows) {
  SchedulerOptions options = with_windows();
  for (WindowedLayers& layers : options.windowed) layers.blocks *= 4;
  Host host(options);
  const SequenceId parent = host.scheduler.add(prompt_of(30), greedy(20), 0);
  while (host.texts[parent].tokens.size() < 4) host.step();
  SequenceOptions sampled = greedy(12);
  sampled.sampling = {.temperature = 0.8f, .seed = 3};
  const Tokens now(host.scheduler.find(parent)->tokens().begin(), host.scheduler.find(parent)->tokens().end());
  const SequenceId fork = host.scheduler.fork(parent, sampled, 0);
  const Step step = host.next();
  EXPECT_EQ(step.copies.size(), 1u);
  for (const WindowedStep& windowed : step.windowed) EXPECT_EQ(windowed.copies.size(), 1u);
  host.complete(step);
  host.run();
  EXPECT_EQ(host.ends[fork].statistics.reused, std::ssize(now) - 1);
  EXPECT_EQ(host.texts[fork], host.alone(now, sampled));
  EXPECT_EQ(host.texts[parent], host.alone(prompt_of(30), greedy(20)));
}

// Copies one device's cached blocks of a text to another.
Restored copy_cache(Host& from, Host& to, const Tokens& tokens, const SavedTable& saved) {
  Restored restored = to.scheduler.restore("", tokens, saved);
  for (const RestoredBlock& block : restored.blocks)
    to.device().write_block(block.block, from.device().read_block(saved.blocks[block.saved]));
  for (int group = 0; group < static_cast<int>(saved.windowed.size()); ++group) {
    const auto g = static_cast<std::size_t>(group);
    for (const RestoredBlock& block : restored.windowed[g])
      to.device().write_block(block.block, from.device().read_block(saved.windowed[g].blocks[block.saved], group),
                              group);
  }
  return restored;
}

TEST(Scheduler, SavesAndRestoresBlocksInWindows) {
  SchedulerOptions options = with_windows();
  for (WindowedLayers& layers : options.windowed) layers.blocks *= 2;
  Host host(options), other(options);
  const SequenceId id = host.scheduler.add(prompt_of(50), greedy(9), 0);
  while (host.texts[id].tokens.size() < 3) host.step();
  const auto text = host.scheduler.find(id)->tokens();
  const Tokens tokens(text.begin(), text.end());
  const SavedTable running = host.scheduler.save(id), cached = host.scheduler.save("", tokens);
  EXPECT_EQ(running.length, 52);
  EXPECT_EQ(cached.length, 52);
  EXPECT_EQ(running.blocks, cached.blocks);
  ASSERT_EQ(running.windowed.size(), 2u);
  EXPECT_EQ(running.windowed[0].first, 11);
  EXPECT_EQ(running.windowed[0].blocks.size(), 2u);
  EXPECT_EQ(running.windowed[1].first, 10);
  // One more, for a text that ends there.
  EXPECT_EQ(cached.windowed[0].first, 10);
  EXPECT_EQ(cached.windowed[0].blocks.back(), running.windowed[0].blocks.back());
  EXPECT_EQ(cached.windowed[1].first, 9);

  other.scheduler.add(prompt_of(3, 7), greedy(1), 0);  // so that blocks get other numbers
  other.step();
  const Restored restored = copy_cache(host, other, tokens, running);
  EXPECT_EQ(restored.blocks.size(), 13u);
  EXPECT_EQ(restored.tokens, 52);
  for (const std::size_t group : {0u, 1u})
    EXPECT_EQ(restored.windowed[group].size(), running.windowed[group].blocks.size());
  const SequenceId continued = other.scheduler.add(tokens, greedy(5), 0);
  other.run();
  EXPECT_EQ(other.ends[continued].statistics.reused, 52);
  EXPECT_EQ(other.texts[continued], host.alone(tokens, greedy(5)));
  SavedTable without = running;
  without.windowed.clear();
  expect_error<UsageError>([&] { other.scheduler.restore("", tokens, without); }, "other windows");
}

// A fork shares the blocks that its parent still had, which are fewer than those visible from the end of its last whole
// block.
TEST(Scheduler, RefusesToSaveAForkWhoseParentReleasedBlocks) {
  SchedulerOptions options{.blocks = 64, .block_size = 4, .max_rows = 2, .chunk = 4, .pipelined = false};
  options.windowed.push_back({6, 40});
  Host host(options);
  const SequenceId parent = host.scheduler.add(prompt_of(20), greedy(60), 0);
  const SequenceId other = host.scheduler.add(prompt_of(5, 5), greedy(100), 0);
  while (host.scheduler.find(parent)->length() < 35) host.step();
  const SequenceId child = host.scheduler.fork(parent, greedy(30), 0);
  while (host.scheduler.find(parent)->place.written < 36) host.step();
  host.scheduler.cancel(other, 0);  // there is a row for the fork
  while (!host.scheduler.find(child)->running) host.step();
  expect_error<UsageError>([&] { host.scheduler.save(child); }, "has given back the blocks before its window");
  while (host.scheduler.find(child)->length() < 45) host.step();
  const SavedTable saved = host.scheduler.save(child);
  for (const Block block : saved.windowed[0].blocks) EXPECT_NE(block, no_block);
}

// Adds short texts until the blocks of layers with windows are full.
void fill_with_texts(Host& host) {
  for (std::int32_t i = 0; i < 40; ++i) {
    Tokens prompt = prompt_of(13, i % 11);
    prompt[0] = i / 11 + 1;
    host.scheduler.add(prompt, greedy(1), 0);
    host.run();
  }
  for (const std::size_t group : {0u, 1u}) EXPECT_LT(host.scheduler.windowed_pool(group).free_blocks(), 2);
}

TEST(Scheduler, RestoresBesideTheEndsOfOtherTexts) {
  Host host(with_windows(256)), other(with_windows(256));
  const Tokens prompt = prompt_of(50, 5);
  host.scheduler.add(prompt, greedy(1), 0);
  host.run();
  const SavedTable saved = host.scheduler.save("", prompt);
  fill_with_texts(other);
  const Restored restored = copy_cache(host, other, prompt, saved);
  EXPECT_EQ(restored.blocks.size(), 12u);
  EXPECT_EQ(restored.tokens, 48);
  for (const std::size_t group : {0u, 1u}) {
    std::set<Block> distinct;
    for (const RestoredBlock& block : restored.windowed[group]) distinct.insert(block.block);
    EXPECT_EQ(distinct.size(), restored.windowed[group].size());
    EXPECT_EQ(distinct.size(), saved.windowed[group].blocks.size());
  }
  Tokens longer = prompt;
  longer.push_back(3);
  const SequenceId id = other.scheduler.add(longer, greedy(12), 0);
  other.run();
  EXPECT_EQ(other.ends[id].statistics.reused, 48);
  EXPECT_EQ(other.texts[id], other.alone(longer, greedy(12)));
}

// Restoring must not evict the earlier blocks that are visible from the end.
TEST(Scheduler, RestoresTheRestOfAText) {
  Host host(with_windows()), other(with_windows());
  const Tokens prompt = prompt_of(50);
  host.scheduler.add(prompt, greedy(1), 0);
  host.run();
  other.scheduler.add(Tokens(prompt.begin(), prompt.begin() + 41), greedy(1), 0);
  other.run();
  {
    const auto text = other.scheduler.reserve(12);  // it leaves what the end of the 40 tokens sees
    EXPECT_EQ(other.scheduler.save("", prompt).length, 40);
    EXPECT_EQ(copy_cache(host, other, prompt, host.scheduler.save("", prompt)).tokens, 8);
    EXPECT_EQ(other.scheduler.save("", prompt).length, 48);
  }
  const SequenceId id = other.scheduler.add(prompt, greedy(12), 0);
  other.run();
  EXPECT_EQ(other.ends[id].statistics.reused, 48);
  EXPECT_EQ(other.texts[id], other.alone(prompt, greedy(12)));
}

// No text could go on from a part of it, which would take the place of others for nothing.
TEST(Scheduler, RestoresNothingWhereTheBlocksOfWindowsAreTaken) {
  Host host(with_windows(256)), other(with_windows(256));
  const Tokens prompt = prompt_of(50, 5);
  host.scheduler.add(prompt, greedy(1), 0);
  host.run();
  fill_with_texts(other);
  const int cached = other.scheduler.prefixes().blocks();
  const auto text = other.scheduler.reserve(100);
  ASSERT_TRUE(text.has_value());
  const Restored restored = copy_cache(host, other, prompt, host.scheduler.save("", prompt));
  EXPECT_TRUE(restored.blocks.empty());
  EXPECT_EQ(restored.tokens, 0);
  EXPECT_EQ(other.scheduler.prefixes().blocks(), cached);
}

TEST(Scheduler, ReservedTextsRotateThroughTheBlocksOfWindows) {
  for (const bool pipelined : {false, true}) {
    SchedulerOptions options = with_windows();
    options.pipelined = pipelined;
    for (WindowedLayers& layers : options.windowed) layers.blocks = most_windowed_blocks(options, layers.window);
    Host host(options);
    const auto text = host.scheduler.reserve(100);
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(text->table().size(), 25u);
    const std::vector<Block> windowed = text->windowed(0);
    ASSERT_EQ(windowed.size(), 25u);
    // Their chunks follow each other, unlike those of sequences.
    const int most = most_windowed_blocks(with_windows(), 6);
    EXPECT_EQ(host.scheduler.windowed_pool(0).used_blocks(), most);
    EXPECT_EQ(host.scheduler.windowed_pool(0).free_blocks(), pipelined ? 1 : 0);
    for (std::size_t i = 0; i + 1 < 25; ++i)
      for (std::size_t j = i + 1; j < std::min<std::size_t>(25, i + static_cast<std::size_t>(most)); ++j)
        EXPECT_NE(windowed[i], windowed[j]);
  }
}

// A fork of a text whose blocks were released computes them again.
TEST(Scheduler, ForksTextsWhoseBeginningWasGivenBack) {
  Host host({.blocks = 8, .block_size = 2, .max_rows = 4, .chunk = 4, .pipelined = false, .window = 3});
  const SequenceId parent = host.scheduler.add(prompt_of(2), greedy(12), 0);
  while (host.texts[parent].tokens.size() < 4) host.step();
  const Tokens so_far(host.scheduler.find(parent)->tokens().begin(), host.scheduler.find(parent)->tokens().end());
  const SequenceId other = host.scheduler.add(prompt_of(9, 5), greedy(5), 0);
  while (host.texts[parent].tokens.size() < 10) host.step();
  EXPECT_GT(host.scheduler.find(parent)->place.table.first(), 0);
  expect_error<UsageError>([&] { host.scheduler.save(parent); }, "has given back the blocks before its window");
  SequenceOptions sampled = greedy(5);
  sampled.sampling = {.temperature = 0.8f, .seed = 3};
  const Tokens now(host.scheduler.find(parent)->tokens().begin(), host.scheduler.find(parent)->tokens().end());
  const SequenceId fork = host.scheduler.fork(parent, sampled, 0);
  const SequenceId late = host.scheduler.add(so_far, greedy(5), 0);
  host.run();
  EXPECT_EQ(host.texts[parent], host.alone(prompt_of(2), greedy(12)));
  EXPECT_EQ(host.texts[other], host.alone(prompt_of(9, 5), greedy(5)));
  EXPECT_EQ(host.texts[fork], host.alone(now, sampled));
  EXPECT_EQ(host.texts[late], host.alone(so_far, greedy(5)));
}

// A host that stops drafting leaves that to prompt lookup.
TEST(Scheduler, CanGoOnWithoutTheHostsDrafts) {
  Host host({.blocks = 32, .block_size = 4});
  SequenceOptions options = greedy(20);
  options.drafts = 4;
  options.draft_source = DraftSource::host;
  const SequenceId id = host.scheduler.add(prompt_of(30), options, 0);
  while (host.scheduler.awaiting_drafts().empty()) host.step();
  host.scheduler.draft_by_lookup();
  EXPECT_TRUE(host.scheduler.awaiting_drafts().empty());
  host.run();
  EXPECT_EQ(host.texts[id], host.alone(prompt_of(30), options));
  EXPECT_GT(host.ends[id].statistics.drafted, 0);
}

TEST(Scheduler, RefusesListsWithoutTheirLogprobs) {
  Host host({.blocks = 8, .block_size = 4, .pipelined = false});
  SequenceOptions options = greedy(2);
  options.logprobs = 2;
  host.scheduler.add({1}, options, 0);
  const Step step = host.next();
  StepResults results = host.device().wait();
  results.likeliest_logprobs.pop_back();
  expect_error<UsageError>([&] { host.scheduler.complete(step, results, 0); }, "hold no log-probabilities for row 0");
}

TEST(Scheduler, FillsAStepsArrays) {
  Host host({.blocks = 16, .block_size = 4, .max_rows = 8, .chunk = 8, .pipelined = false});
  SequenceOptions drawn = greedy(4);
  drawn.sampling = {
      .temperature = 0.5f, .top_k = 7, .top_p = 0.9f, .min_p = 0.1f, .seed = (std::uint64_t{3} << 32) + 2};
  host.scheduler.add({1, 2, 3, 4, 5}, greedy(4), 0);
  host.scheduler.add({6, 7, 8}, drawn, 0);
  host.scheduler.add({9}, greedy(4), 0);
  const Step prefill = host.step();
  EXPECT_EQ(prefill.kind, StepKind::prefill);
  EXPECT_EQ(std::tie(prefill.rows, prefill.time, prefill.blocks, prefill.outputs), std::make_tuple(2, 8, 2, 1));
  EXPECT_EQ(prefill.ids, (Tokens{0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 6, 7, 8}));
  EXPECT_EQ(prefill.positions, (Tokens{-1, -1, -1, 0, 1, 2, 3, 4, -1, -1, -1, -1, -1, 0, 1, 2}));
  EXPECT_EQ(prefill.lengths, (Tokens{5, 3}));
  EXPECT_EQ(prefill.table, (Tokens{0, 1, 2, 0}));
  EXPECT_EQ(prefill.sampling.temperature, (std::vector<float>{0, 0.5f}));
  EXPECT_EQ(prefill.sampling.top_k, (Tokens{0, 7}));
  EXPECT_EQ(prefill.sampling.top_p, (std::vector<float>{1, 0.9f}));
  EXPECT_EQ(prefill.sampling.min_p, (std::vector<float>{0, 0.1f}));
  EXPECT_EQ(prefill.sampling.seed, (std::vector<std::uint32_t>{0, 0, 2, 3}));
  const Step decode = host.step();
  EXPECT_EQ(decode.kind, StepKind::decode);
  EXPECT_EQ(std::tie(decode.rows, decode.time), std::make_tuple(4, 1));
  EXPECT_EQ(decode.positions, (Tokens{5, 3, 0, -1}));
  EXPECT_EQ(decode.lengths, (Tokens{6, 4, 1, 0}));
  EXPECT_EQ(decode.carried, (Tokens{-1, -1, -1, -1}));
  EXPECT_EQ(decode.sampling.draw, (std::vector<std::uint32_t>{1, 1, 0, 0}));
}

TEST(Scheduler, RoundsSizesUpToGivenBuckets) {
  Host host({.blocks = 64,
             .block_size = 2,
             .context = 64,
             .max_rows = 5,
             .chunk = 10,
             .row_buckets = {3, 5},
             .time_buckets = {1, 6, 10},
             .block_buckets = {8, 32}});
  host.scheduler.add(prompt_of(4), greedy(4), 0);
  const Step small = host.step();
  EXPECT_EQ(std::tie(small.rows, small.time, small.blocks), std::make_tuple(3, 6, 8));
  host.scheduler.add(prompt_of(20), greedy(4), 0);
  host.step();
  const Step large = host.step();
  EXPECT_EQ(std::tie(large.rows, large.time, large.blocks), std::make_tuple(3, 10, 8));
}

TEST(Scheduler, ComputesPromptsInChunksBetweenDecodeSteps) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 8, .prefill_tokens = 12, .pipelined = false});
  const SequenceId first = host.scheduler.add(prompt_of(6), greedy(20), 0);
  host.step();
  host.scheduler.add(prompt_of(20, 3), greedy(4), 0);
  host.scheduler.add(prompt_of(20, 5), greedy(4), 0);
  std::vector<StepKind> kinds;
  for (int i = 0; i < 8; ++i) {
    const Step step = host.step();
    kinds.push_back(step.kind);
    if (step.kind == StepKind::decode) {
      EXPECT_EQ(step.plan[0].id, first);
      continue;
    }
    int tokens = 0;
    for (const Row& row : step.plan) {
      EXPECT_LE(row.count, 8);
      tokens += row.count;
    }
    EXPECT_LE(tokens, 12);
  }
  using enum StepKind;
  EXPECT_EQ(kinds, (std::vector{decode, prefill, decode, prefill, decode, prefill, decode, prefill}));
  host.run();
  EXPECT_EQ(host.texts[first], host.alone(prompt_of(6), greedy(20)));
}

TEST(Scheduler, MixesPromptsWithDecoding) {
  Host host({.blocks = 64, .block_size = 4, .max_rows = 8, .chunk = 16, .mixed_time = 4, .pipelined = false});
  const SequenceId first = host.scheduler.add(prompt_of(6), greedy(20), 0);
  host.step();
  const SequenceId second = host.scheduler.add(prompt_of(18, 3), greedy(4), 0);
  const Step mixed = host.step();
  EXPECT_EQ(mixed.kind, StepKind::mixed);
  EXPECT_EQ(mixed.time, 4);
  ASSERT_EQ(mixed.plan.size(), 5u);
  EXPECT_EQ(mixed.plan[0].id, first);
  EXPECT_EQ(mixed.plan[0].wanted, Wanted::token);
  for (std::size_t row = 1; row < 5; ++row) {
    EXPECT_EQ(mixed.plan[row].id, second);
    EXPECT_EQ(mixed.plan[row].start, 4 * static_cast<int>(row - 1));
    EXPECT_EQ(mixed.plan[row].wanted, Wanted::nothing);
  }
  host.run();
  EXPECT_EQ(host.texts[first], host.alone(prompt_of(6), greedy(20)));
  EXPECT_EQ(host.texts[second], host.alone(prompt_of(18, 3), greedy(4)));
}

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  Host host({.blocks = 256, .block_size = 4, .chunk = 8, .prefill_tokens = 8, .pipelined = false});
  host.scheduler.add(prompt_of(800), greedy(1), 0);
  host.step();
  const SequenceId quick = host.scheduler.add(prompt_of(8, 5), greedy(1), 0);
  int steps = 0;
  for (; !host.ends.contains(quick); ++steps) host.step();
  EXPECT_LE(steps, 3);
}

TEST(Scheduler, EverySequenceGetsItsFirstTokenInBoundedTime) {
  Host host({.blocks = 200, .block_size = 4, .context = 64, .max_rows = 64, .chunk = 8, .prefill_tokens = 16});
  std::vector<SequenceId> ids;
  for (int i = 0; i < 40; ++i) {
    SequenceOptions options = greedy(16);
    ids.push_back(host.scheduler.add(prompt_of(1 + i % 24, i), options, host.now));
    host.step();
  }
  host.run();
  // 40 prompts of 12 tokens on average in steps of 16, alternating with decoding: everyone is through in 120 rounds.
  for (const SequenceId id : ids) {
    const SequenceStatistics& statistics = host.ends.at(id).statistics;
    EXPECT_LE(*statistics.first_token - statistics.arrived, 120) << "sequence " << id;
  }
}

TEST(Scheduler, SubmitsTheNextStepBeforeTheTokenIsRead) {
  Host host({.blocks = 16, .block_size = 4});
  const SequenceId id = host.scheduler.add({1, 2, 3}, greedy(4), 0);
  std::deque<Step> steps;
  steps.push_back(host.next());
  steps.push_back(host.next());
  EXPECT_EQ(steps[1].carried, Tokens{0});
  EXPECT_EQ(steps[1].positions, Tokens{3});
  EXPECT_FALSE(host.scheduler.next(0)) << "two steps are in flight";
  host.complete(steps[0]);
  steps.push_back(host.next());
  host.complete(steps[1]);
  steps.push_back(host.next());
  EXPECT_FALSE(host.scheduler.next(0)) << "four tokens are on their way";
  host.complete(steps[2]);
  EXPECT_FALSE(host.scheduler.next(0));
  host.complete(steps[3]);
  EXPECT_EQ(host.texts[id], host.alone({1, 2, 3}, greedy(4)));
}

// Finds a prompt after which the model ends its text within a few tokens.
Tokens prompt_with_end(const Host& host, SequenceOptions& options) {
  options.end_tokens = {end_token};
  for (std::int32_t a = 1; a < vocabulary; ++a)
    for (std::int32_t b = 1; b < vocabulary; ++b) {
      const Text text = host.alone({a, b, 3}, options);
      if (text.reason == FinishReason::end && text.tokens.size() > 1) return {a, b, 3};
    }
  ADD_FAILURE() << "no text ends";
  return {1};
}

TEST(Scheduler, DiscardsAStepPastTheEnd) {
  Host host({.blocks = 16, .block_size = 2});
  SequenceOptions options = greedy(20);
  const Tokens prompt = prompt_with_end(host, options);
  const SequenceId id = host.scheduler.add(prompt, options, 0);
  host.run();
  const Text alone = host.alone(prompt, options);
  EXPECT_EQ(host.texts[id], alone);
  EXPECT_EQ(host.steps, std::ssize(alone.tokens) + 2) << "one for each token and the end, and one too many";
  // Tokens computed past the end are not in the tree.
  EXPECT_EQ(host.scheduler.prefixes().blocks(), (3 + std::ssize(alone.tokens)) / 2);
}

TEST(Scheduler, ForksShareThePrompt) {
  Host host({.blocks = 64, .block_size = 4, .pipelined = false});
  const Tokens prompt = prompt_of(30);
  std::vector<SequenceId> ids = {host.scheduler.add(prompt, greedy(6), 0)};
  std::vector<SequenceOptions> options = {greedy(6)};
  for (std::uint64_t seed = 1; seed < 5; ++seed) {
    options.push_back(greedy(6));
    options.back().sampling = {.temperature = 0.9f, .seed = seed};
    ids.push_back(host.scheduler.fork(ids[0], options.back(), 0));
  }
  const Step first = host.step();
  EXPECT_EQ(first.plan.size(), 1u) << "the prompt is computed once";
  const Step second = host.step();
  EXPECT_EQ(second.plan.size(), 5u);
  EXPECT_EQ(second.copies.size(), 4u) << "each but one of those that share the last block copies it";
  host.run();
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(host.texts[ids[i]], host.alone(prompt, options[i])) << i;
  EXPECT_EQ(host.scheduler.statistics().tokens, 30 + 4 + 5 * 5);
  expect_error<UsageError>([&] { host.scheduler.fork(ids[0], greedy(1), 0); }, "there is no sequence 1 to fork");
}

TEST(Scheduler, AForkInTheMiddleContinuesTheText) {
  Host host({.blocks = 64, .block_size = 4});
  const SequenceId id = host.scheduler.add(prompt_of(6), greedy(20), 0);
  for (int i = 0; i < 5; ++i) host.step();
  const std::span<const std::int32_t> so_far = host.scheduler.find(id)->tokens();
  const Tokens prompt(so_far.begin(), so_far.end());
  SequenceOptions options = greedy(7);
  options.sampling = {.temperature = 0.8f, .seed = 5};
  const SequenceId fork = host.scheduler.fork(id, options, 0);
  host.run();
  EXPECT_EQ(host.texts[fork], host.alone(prompt, options));
  EXPECT_EQ(host.ends[fork].statistics.reused, std::ssize(prompt) - 1);
}

TEST(Scheduler, AForkWhoseParentIsCancelledGoesOn) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 4});
  const SequenceId id = host.scheduler.add(prompt_of(14), greedy(4), 0), fork = host.scheduler.fork(id, greedy(5), 0);
  host.step();
  EXPECT_TRUE(host.scheduler.cancel(id, 0));
  EXPECT_FALSE(host.scheduler.cancel(id, 0));
  host.run();
  EXPECT_EQ(host.texts[fork], host.alone(prompt_of(14), greedy(5)));
  EXPECT_EQ(host.ends[id].finished, FinishReason::cancelled);
}

TEST(Scheduler, ReusesCachedPrefixes) {
  Host host({.blocks = 64, .block_size = 4});
  SequenceOptions adapted = greedy(3);
  adapted.name_space = "adapter";
  const SequenceId first = host.scheduler.add(prompt_of(13), greedy(8), 0);
  host.run();
  Tokens longer = prompt_of(13);
  longer.insert(longer.end(), host.texts[first].tokens.begin(), host.texts[first].tokens.end());
  longer.push_back(5);
  const SequenceId second = host.scheduler.add(longer, greedy(3), 0), third = host.scheduler.add(longer, adapted, 0);
  host.run();
  EXPECT_EQ(host.ends[second].statistics.reused, 20) << "the answer is cached too";
  EXPECT_EQ(host.ends[third].statistics.reused, 0) << "adapters do not share";
  EXPECT_EQ(host.texts[second], host.alone(longer, greedy(3)));
  EXPECT_EQ(host.texts[third], host.texts[second]);
}

TEST(Scheduler, StoresACommonPrefixOnce) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 16, .pipelined = false});
  for (int i = 0; i < 4; ++i) host.scheduler.add(prompt_of(17), greedy(2), 0);
  host.step();  // all four at once, before any of them is cached
  EXPECT_EQ(host.scheduler.pool().used_blocks(), 4);
  host.run();
}

TEST(Scheduler, EvictsCachedPrefixesForNewTexts) {
  Host host({.blocks = 8, .block_size = 4});
  for (int i = 0; i < 6; ++i) {
    const SequenceId id = host.scheduler.add(prompt_of(20, i), greedy(4), 0);
    host.run();
    EXPECT_EQ(host.texts[id], host.alone(prompt_of(20, i), greedy(4)));
  }
  EXPECT_GT(host.scheduler.prefixes().statistics().evictions, 10);
  EXPECT_EQ(host.scheduler.statistics().preemptions, 0);
}

TEST(Scheduler, PreemptsTheYoungestWhenTheCacheIsFull) {
  Host host({.blocks = 10, .block_size = 2, .prefix_cache = false});
  std::vector<SequenceId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(host.scheduler.add(prompt_of(2, i), greedy(14), 0));
  host.run();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(host.texts[ids[static_cast<std::size_t>(i)]], host.alone(prompt_of(2, i), greedy(14)));
  EXPECT_EQ(host.ends[ids[0]].statistics.preemptions, 0);
  EXPECT_GT(host.ends[ids[2]].statistics.preemptions, 0);
  EXPECT_GT(host.ends[ids[2]].statistics.recomputed, 0);
}

TEST(Scheduler, EndsWhereTheContextIsFull) {
  Host host({.blocks = 4, .block_size = 2});
  const SequenceId id = host.scheduler.add(prompt_of(8), greedy(9), 0),
                   other = host.scheduler.add(prompt_of(5), greedy(9), 0);
  host.run();
  EXPECT_EQ(host.texts[id].tokens.size(), 1u);
  EXPECT_EQ(host.texts[other].tokens.size(), 4u);
  EXPECT_EQ(host.texts[other], host.alone(prompt_of(5), greedy(9)));
  EXPECT_EQ(host.texts[other].reason, FinishReason::context);
}

TEST(Scheduler, EnforcesDeadlines) {
  Host host({.blocks = 16, .block_size = 4, .max_rows = 1, .pipelined = false});
  SequenceOptions brief = greedy(50), late = greedy(50);
  brief.deadline = 5;
  late.deadline = 7;
  const SequenceId running = host.scheduler.add(prompt_of(4), brief, 0),
                   waiting = host.scheduler.add(prompt_of(4), late, 0);
  host.now = 4;
  host.step();
  host.step();
  host.now = 5;
  host.step();
  EXPECT_EQ(host.ends.at(running).finished, FinishReason::deadline);
  EXPECT_EQ(host.texts[running].tokens.size(), 2u) << "the step that ran past it is ignored";
  host.now = 8;
  EXPECT_FALSE(host.scheduler.next(host.now));
  host.take(host.scheduler.take_events());
  EXPECT_EQ(host.ends.at(waiting).finished, FinishReason::deadline);
  EXPECT_FALSE(host.scheduler.has_work());
}

TEST(Scheduler, CancelsWithinAStep) {
  Host host({.blocks = 16, .block_size = 4});
  const SequenceId a = host.scheduler.add(prompt_of(5), greedy(9), 0),
                   b = host.scheduler.add(prompt_of(5, 2), greedy(9), 0);
  const Step first = host.next(), second = host.next();
  EXPECT_EQ(second.plan.size(), 2u);
  host.scheduler.cancel(a, 0);
  host.complete(first);
  host.complete(second);
  EXPECT_TRUE(host.texts[a].tokens.empty());
  host.run();
  EXPECT_EQ(host.texts[b], host.alone(prompt_of(5, 2), greedy(9)));
}

TEST(Scheduler, GuessesFromThePrompt) {
  Host host({.blocks = 64, .block_size = 4});
  SequenceOptions options = greedy(40);
  options.drafts = 7;
  const Tokens prompt = prompt_of(24);
  const SequenceId id = host.scheduler.add(prompt, options, 0);
  host.run();
  EXPECT_EQ(host.texts[id], host.alone(prompt, options));
  const SequenceStatistics& statistics = host.ends[id].statistics;
  EXPECT_GT(statistics.accepted, 10);
  EXPECT_EQ(host.steps + statistics.accepted, 40) << "every accepted guess saves a step";
  EXPECT_EQ(host.scheduler.statistics().accepted, statistics.accepted);
}

TEST(Scheduler, SampledTextsAreTheSameWithGuesses) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Host host({.blocks = 64, .block_size = 4});
    SequenceOptions options = greedy(30);
    options.sampling = {.temperature = 0.6f, .seed = seed};
    options.drafts = 5;
    const SequenceId id = host.scheduler.add(prompt_of(24), options, 0);
    host.run();
    EXPECT_EQ(host.texts[id], host.alone(prompt_of(24), options));
  }
}

TEST(Scheduler, SequencesThatWaitForTheirTokenStayInOneBatch) {
  Host host({.blocks = 64, .block_size = 4, .max_rows = 4, .chunk = 4, .prefill_tokens = 4});
  SequenceOptions options = greedy(30);
  options.drafts = 2;
  for (int i = 0; i < 4; ++i) host.scheduler.add(prompt_of(4, i), options, 0);
  host.run();
  // 4 prompts one by one, then about 30 steps for all; in two halves it would be twice as many.
  EXPECT_LE(host.steps, 4 + 32);
}

TEST(Scheduler, VerifiesTheHostsGuesses) {
  Host host({.blocks = 64, .block_size = 4, .vocabulary = vocabulary});
  SequenceOptions options = greedy(12);
  options.drafts = 4;
  options.draft_source = DraftSource::host;
  const SequenceId id = host.scheduler.add(prompt_of(6), options, 0);
  const Tokens text = host.alone(prompt_of(6), options).tokens;
  host.step();
  EXPECT_EQ(host.scheduler.awaiting_drafts(), std::vector{id});
  EXPECT_FALSE(host.scheduler.next(0)) << "it waits for a draft";
  host.scheduler.suggest(id, {text[1], text[2], text[3] % (vocabulary - 1) + 1, 1, 1, 1, 1});
  const Step step = host.step();
  EXPECT_EQ(step.plan[0].drafts, 4);
  EXPECT_EQ(std::tie(step.time, step.outputs), std::make_tuple(8, 8));
  EXPECT_EQ(host.texts[id].tokens, Tokens(text.begin(), text.begin() + 4)) << "two guesses and the model's own token";
  EXPECT_EQ(host.scheduler.find(id)->statistics().accepted, 2);
  host.scheduler.suggest(id, {});
  EXPECT_EQ(host.step().plan[0].drafts, 0);
  host.scheduler.suggest(id, {1});
  expect_error<UsageError>([&] { host.scheduler.suggest(id, {1}); }, "sequence 1 does not await a draft");
  host.step();
  expect_error<UsageError>([&] { host.scheduler.suggest(id, {-1}); }, "there is no token -1");
}

TEST(Scheduler, ASecondSchedulerRunsTheDraftModel) {
  // The draft model is the model itself, so that all of its guesses are right.
  const SchedulerOptions options{.blocks = 64, .block_size = 4, .pipelined = false};
  Host model(options), drafter(options);
  SequenceOptions drafted = greedy(20);
  drafted.drafts = 4;
  drafted.draft_source = DraftSource::host;
  const Tokens prompt = prompt_of(20);
  const SequenceId id = model.scheduler.add(prompt, drafted, 0);
  int steps = 0;
  for (; model.scheduler.has_work(); ++steps) {
    for (const SequenceId waiting : model.scheduler.awaiting_drafts()) {
      const auto text = model.scheduler.find(waiting)->tokens();
      const SequenceId draft = drafter.scheduler.add({text.begin(), text.end()}, greedy(4), 0);
      drafter.run();
      model.scheduler.suggest(waiting, drafter.texts.at(draft).tokens);
    }
    model.step();
  }
  EXPECT_EQ(model.texts[id], model.alone(prompt, drafted));
  EXPECT_EQ(steps, 1 + 4) << "the prompt's token, then five at a time";
  EXPECT_EQ(model.ends[id].statistics.accepted, 15);
  EXPECT_EQ(drafter.scheduler.statistics().reused, 0 + 24 + 28 + 32)
      << "after the first one, a draft computes only what is new";
}

TEST(Scheduler, MasksDrawsOnTheDevice) {
  Host host({.blocks = 64, .block_size = 4, .vocabulary = vocabulary, .device_masks = true});
  SequenceOptions options = greedy(20);
  options.constraint = [] { return std::make_unique<NoRepetition>(); };
  const SequenceId masked = host.scheduler.add({7, 7}, options, 0), free = host.scheduler.add({7, 7}, greedy(5), 0);
  const Step first = host.next();
  EXPECT_EQ(first.plan[0].wanted, Wanted::token);
  EXPECT_EQ(first.mask, (std::vector<std::uint32_t>{0xffe, 0xffffffff}));
  const Step second = host.next();
  EXPECT_EQ(second.plan.size(), 1u) << "a mask needs the token before it";
  EXPECT_TRUE(second.mask.empty());
  host.complete(first);
  host.complete(second);
  host.run();
  EXPECT_EQ(host.texts[masked], host.alone({7, 7}, options));
  EXPECT_EQ(host.texts[free], host.alone({7, 7}, greedy(5)));
  expect_error<UsageError>([] { Scheduler({.device_masks = true}); },
                           "vocabulary is 0, but must be given for device_masks");
}

TEST(Scheduler, ADeviceThatIgnoresAMaskEndsOnlyThatSequence) {
  Host host({.blocks = 64, .block_size = 4, .vocabulary = vocabulary, .device_masks = true});
  SequenceOptions options = greedy(20);
  options.constraint = [] { return std::make_unique<NoRepetition>(); };
  const SequenceId id = host.scheduler.add({7, 7}, options, 0);
  const Step step = host.next();
  host.take(host.scheduler.complete(step, {.tokens = {end_token + 7}, .logits = {}}, 0));
  const Step repeated = host.next();
  host.take(host.scheduler.complete(repeated, {.tokens = {end_token + 7}, .logits = {}}, 0));
  EXPECT_EQ(host.ends[id].finished, FinishReason::failed);
  EXPECT_EQ(host.ends[id].error, "a token was repeated");
}

std::shared_ptr<const Vocabulary> letters() {
  std::vector<std::string> tokens = {"<end>"};
  for (char letter = 'a'; std::ssize(tokens) < vocabulary; ++letter) tokens.emplace_back(1, letter);
  tokens[0].clear();
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<int>{end_token});
}

TEST(Scheduler, FollowsAGrammarOnTheHost) {
  const auto vocabulary_of_letters = letters();
  const auto grammar = compile_regex("(abc|k+j){3}");
  SequenceOptions options = greedy(30);
  options.end_tokens = {end_token};
  options.sampling = {.temperature = 1.5f, .seed = 3};
  options.constraint = [=] { return make_constraint(grammar, vocabulary_of_letters); };
  Host host({.blocks = 64, .block_size = 4});
  const SequenceId id = host.scheduler.add(prompt_of(5), options, 0),
                   free = host.scheduler.add(prompt_of(6), greedy(12), 0);
  options.drafts = 3;
  const SequenceId guessed = host.scheduler.add(prompt_of(5), options, 0);
  const Step first = host.next();
  EXPECT_EQ(first.plan[0].wanted, Wanted::logits);
  const Step second = host.next();
  EXPECT_EQ(second.plan.size(), 1u) << "only the free one can go on before its token is read";
  host.complete(first);
  host.complete(second);
  host.run();
  std::string text;
  for (const std::int32_t token : host.texts[id].tokens) text += vocabulary_of_letters->bytes(token);
  const auto check = make_constraint(grammar, vocabulary_of_letters);
  for (const std::int32_t token : host.texts[id].tokens) check->accept(token);
  EXPECT_TRUE(check->complete()) << text;
  EXPECT_EQ(host.texts[id].reason, FinishReason::end) << "no end token is needed";
  EXPECT_EQ(host.texts[guessed], host.texts[id]);
  EXPECT_EQ(host.texts[free], host.alone(prompt_of(6), greedy(12)));
}

TEST(Scheduler, AFailingSamplerEndsOnlyItsSequence) {
  Host host({.blocks = 64, .block_size = 4});
  SequenceOptions options = greedy(5);
  options.sampling.banned_tokens = {vocabulary + 5};
  const SequenceId bad = host.scheduler.add(prompt_of(5), options, 0),
                   good = host.scheduler.add(prompt_of(6), greedy(5), 0);
  host.run();
  EXPECT_EQ(host.ends[bad].finished, FinishReason::failed);
  EXPECT_NE(host.ends[bad].error.find("banned_tokens"), std::string::npos);
  EXPECT_EQ(host.texts[good], host.alone(prompt_of(6), greedy(5)));
}

class Letters : public TextStream {
 public:
  std::string push(std::int32_t token) override { return std::string(1, static_cast<char>('a' + token)); }
  std::string finish() override { return "."; }
};

TEST(Scheduler, StreamsTextUpToAStopString) {
  SequenceOptions options = greedy(12);
  options.text = [](std::span<const std::int32_t>) { return std::make_unique<Letters>(); };
  Host host({.blocks = 64, .block_size = 4});
  const SequenceId whole = host.scheduler.add(prompt_of(5), options, 0);
  host.run();
  std::string text;
  for (const std::int32_t token : host.alone(prompt_of(5), options).tokens) text += static_cast<char>('a' + token);
  EXPECT_EQ(host.streams[whole], text + ".");
  options.stop = {text.substr(4, 2)};
  const std::size_t at = text.find(options.stop[0]);
  const SequenceId stopped = host.scheduler.add(prompt_of(5), options, 0);
  host.run();
  EXPECT_EQ(host.streams[stopped], text.substr(0, at));
  EXPECT_EQ(host.texts[stopped].reason, FinishReason::stop);
  EXPECT_EQ(host.texts[stopped].tokens.size(), at + 2);
}

TEST(Scheduler, AFailedStepEndsOnlyItsSequences) {
  Host host({.blocks = 64, .block_size = 4, .max_rows = 1, .pipelined = false});
  const SequenceId bad = host.scheduler.add(prompt_of(9), greedy(5), 0),
                   good = host.scheduler.add(prompt_of(9), greedy(5), 0);
  const Step lost = *host.scheduler.next(0);
  host.take(host.scheduler.fail(lost, "the device is gone", 0));
  EXPECT_EQ(host.ends[bad].error, "the device is gone");
  EXPECT_EQ(host.scheduler.prefixes().blocks(), 0);
  host.run();
  EXPECT_EQ(host.texts[good], host.alone(prompt_of(9), greedy(5)));
}

// The token that the second step takes over from the first does not exist.
TEST(Scheduler, AStepWithoutMemoryEndsOnlyItsYoungestSequence) {
  Host host({.blocks = 64, .block_size = 4});
  const SequenceId first = host.scheduler.add(prompt_of(9), greedy(5), 0),
                   second = host.scheduler.add(prompt_of(9, 4), greedy(5), 0);
  const Step lost = host.next(), after = host.next();
  ASSERT_EQ(lost.plan.size(), 2u);
  ASSERT_GE(after.carried[0], 0);
  host.device().wait();
  host.take(host.scheduler.refuse(lost, "no memory", 0));
  EXPECT_EQ(host.ends[second].error, "no memory");
  EXPECT_EQ(name(host.texts[second].reason), "failed");
  host.complete(after);
  EXPECT_TRUE(host.texts[first].tokens.empty());
  host.run();
  EXPECT_EQ(host.texts[first], host.alone(prompt_of(9), greedy(5)));
}

TEST(Scheduler, StepsOfPromptsHaveABoundWithTheirPadding) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 8, .prefill_tokens = 64, .prefill_cells = 16});
  for (const int length : {2, 3, 8, 2, 2}) host.scheduler.add(prompt_of(length), greedy(2), 0);
  const Step first = host.step();  // a third row would be 4 x 8
  EXPECT_EQ(first.plan.size(), 2u);
  EXPECT_EQ(first.rows * first.time, 8);
  for (int left = 100; host.scheduler.has_work() && left > 0; --left) {
    const Step step = host.step();
    EXPECT_LE(step.rows * step.time, 16);
  }
  EXPECT_FALSE(host.scheduler.has_work());
}

TEST(Scheduler, AlwaysMixedStepsAreAllAlike) {
  Host host({.blocks = 64, .block_size = 4, .max_rows = 4, .mixed_time = 1, .always_mixed = true, .row_buckets = {4}});
  const SequenceId id = host.scheduler.add(prompt_of(11), greedy(5), 0);
  while (host.scheduler.has_work()) {
    const Step step = host.step();
    EXPECT_EQ(step.rows, 4);
    EXPECT_EQ(step.time, 1);
  }
  EXPECT_EQ(host.texts[id], host.alone(prompt_of(11), greedy(5)));
  expect_error<UsageError>([] { Scheduler({.always_mixed = true}); }, "mixed_time is 0, but must be positive");
}

TEST(Scheduler, ReservesBlocksBesideTheSequences) {
  Host host({.blocks = 8, .block_size = 4});
  host.scheduler.add(prompt_of(15), greedy(1), 0);
  host.run();
  EXPECT_EQ(host.scheduler.prefixes().blocks(), 3);
  {
    const auto table = host.scheduler.reserve(25);  // seven blocks: what is cached gives way
    ASSERT_TRUE(table.has_value());
    EXPECT_EQ(table->table().size(), 7u);
    EXPECT_EQ(host.scheduler.prefixes().blocks(), 1);
    EXPECT_FALSE(host.scheduler.reserve(9).has_value());
  }
  EXPECT_EQ(host.scheduler.pool().used_blocks(), 0);
}

TEST(Scheduler, AStepAfterAFailedOneStillCounts) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 8, .prefill_tokens = 8});
  const SequenceId bad = host.scheduler.add(prompt_of(16), greedy(5), 0),
                   good = host.scheduler.add(prompt_of(24, 4), greedy(5), 0);
  const Step lost = host.next(), after = host.next();
  ASSERT_EQ(lost.plan[0].id, bad);
  ASSERT_EQ(after.plan[0].id, good);
  host.device().wait();
  host.take(host.scheduler.fail(lost, "lost", 0));
  const Step again = host.next();
  EXPECT_EQ(again.plan[0].start, 0) << "nothing in the cache is relied on";
  host.complete(after);
  EXPECT_EQ(host.scheduler.prefixes().blocks(), 0) << "nor is what the step computed";
  host.complete(again);
  host.run();
  EXPECT_EQ(host.texts[good], host.alone(prompt_of(24, 4), greedy(5)));
}

// It finds out after two tokens that nothing can follow.
class DeadEnd : public Constraint {
 public:
  const TokenMask& allowed(int) override {
    if (accepted_ == 2) throw ConstraintError("no token can continue the text");
    mask_ = TokenMask(vocabulary);
    for (std::size_t token = 0; token < vocabulary; ++token) mask_.set(token, true);
    return mask_;
  }
  void accept(int) override { ++accepted_; }
  bool complete() const override { return false; }
  void reset() override { accepted_ = 0; }

 private:
  int accepted_ = 0;
  TokenMask mask_;
};

TEST(Scheduler, AConstraintThatAllowsNothingEndsOnlyItsText) {
  Host host({.vocabulary = vocabulary, .device_masks = true});
  SequenceOptions dead = greedy(8);
  dead.constraint = [] { return std::make_unique<DeadEnd>(); };
  const SequenceId first = host.scheduler.add(prompt_of(3), dead, 0),
                   second = host.scheduler.add(prompt_of(4), greedy(8), 0);
  host.run();
  EXPECT_EQ(host.texts[first].reason, FinishReason::failed);
  EXPECT_EQ(host.texts[first].tokens.size(), 2u);
  EXPECT_EQ(host.ends[first].error, "no token can continue the text");
  EXPECT_EQ(host.texts[second], host.alone(prompt_of(4), greedy(8)));
  EXPECT_EQ(host.scheduler.pool().used_blocks(), host.scheduler.prefixes().blocks());
}

// A sampler that throws ends only its text; objects that are not exceptions also reach the caller.
TEST(Scheduler, ASamplerThatThrowsEndsOnlyItsText) {
  for (const bool is_exception : {true, false}) {
    Host host({.pipelined = false, .vocabulary = vocabulary});
    SequenceOptions throwing = greedy(8);
    throwing.sampler = [is_exception] {
      auto sampler = std::make_unique<Sampler>(SamplerOptions{.temperature = 0});
      sampler->add_processor([is_exception](std::span<float>, std::span<const int> history) {
        if (history.size() < 5) return;
        if (is_exception) throw std::runtime_error("out of ideas");
        throw 42;
      });
      return sampler;
    };
    const SequenceId first = host.scheduler.add(prompt_of(3), throwing, 0),
                     second = host.scheduler.add(prompt_of(4), greedy(8), 0);
    int thrown = 0;
    for (bool is_over = false; !is_over;) try {
        host.run();
        is_over = true;
      } catch (int) {
        ++thrown;
      }
    EXPECT_EQ(thrown, is_exception ? 0 : 1);
    EXPECT_EQ(host.texts[first].reason, FinishReason::failed);
    EXPECT_EQ(host.texts[second], host.alone(prompt_of(4), greedy(8)));
  }
}

// Only what the device cannot do is left to the host; a window alone penalises nothing.
TEST(Scheduler, KnowsWhichSettingsTheDeviceSupports) {
  const auto is_on_host = [](const SamplerOptions& sampling, bool penalises, bool constrained = false) {
    SchedulerOptions options;
    options.vocabulary = vocabulary;
    options.device_masks = true;
    options.device_penalises = penalises;
    Scheduler scheduler(options);
    SequenceOptions sequence{.sampling = sampling};
    if (constrained) sequence.constraint = [] { return std::make_unique<NoRepetition>(); };
    return scheduler.find(scheduler.add({1, 2}, sequence, 0))->samples_on_host();
  };
  EXPECT_FALSE(is_on_host({.penalty_window = 4}, false));
  for (const SamplerOptions& sampling :
       {SamplerOptions{.repetition_penalty = 1.1f}, SamplerOptions{.presence_penalty = 1},
        SamplerOptions{.frequency_penalty = -1}, SamplerOptions{.logit_bias = {{3, 1.0f}}},
        SamplerOptions{.banned_tokens = {3}}}) {
    EXPECT_TRUE(is_on_host(sampling, false));
    EXPECT_FALSE(is_on_host(sampling, true));
  }
  EXPECT_TRUE(is_on_host({.banned_tokens = {3}}, true, true)) << "that nothing is left may only be seen there";
  EXPECT_TRUE(is_on_host({.typical_p = 0.9f}, true));
  expect_error<UsageError>(
      [&] {
        is_on_host({.logit_bias = {{vocabulary, 1.0f}}}, true);
      },
      "logit_bias names token 12");
  expect_error<UsageError>([&] { is_on_host({.banned_tokens = {-1}}, true); }, "banned_tokens names token -1");
}

TEST(Scheduler, StepsCompleteInOrder) {
  Host host({.blocks = 64, .block_size = 4});
  const SequenceId id = host.scheduler.add(prompt_of(9), greedy(5), 0);
  const Step first = host.next(), second = host.next();
  expect_error<UsageError>([&] { host.scheduler.complete(second, {}, 0); }, "step 1 is not the oldest in flight");
  expect_error<UsageError>([&] { host.scheduler.complete(first, {}, 0); },
                           "the results of step 0 hold 0 tokens, but must hold 1 for each of 1 rows");
  host.complete(first);
  host.complete(second);
  host.run();
  EXPECT_EQ(host.texts[id], host.alone(prompt_of(9), greedy(5))) << "the errors changed nothing";
}

TEST(Scheduler, MissesLogits) {
  Host host({.blocks = 64, .block_size = 4, .device_samples = false});
  host.scheduler.add(prompt_of(9), greedy(5), 0);
  const Step step = host.next();
  expect_error<UsageError>([&] { host.scheduler.complete(step, {}, 0); },
                           "the results of step 0 hold 0 logits for row 0");
}

TEST(Scheduler, SavesACacheAndRestoresItElsewhere) {
  const SchedulerOptions options{.blocks = 32, .block_size = 4, .pipelined = false};
  Host host(options), other(options);
  const SequenceId id = host.scheduler.add(prompt_of(18), greedy(9), 0);
  for (int i = 0; i < 4; ++i) host.step();
  const auto text = host.scheduler.find(id)->tokens();
  const Tokens tokens(text.begin(), text.end());
  const SavedTable saved = host.scheduler.save(id);
  EXPECT_EQ(saved.length, 20);
  ASSERT_EQ(saved.blocks.size(), 5u);

  other.scheduler.add(prompt_of(3, 7), greedy(1), 0);  // so that blocks get other numbers
  other.step();
  const auto restored = other.scheduler.restore("", tokens, saved);
  ASSERT_EQ(restored.blocks.size(), 5u);
  for (const RestoredBlock& block : restored.blocks)
    other.device().write_block(block.block, host.device().read_block(saved.blocks[block.saved]));
  EXPECT_TRUE(other.scheduler.restore("", tokens, saved).blocks.empty()) << "they are there already";
  const SequenceId continued = other.scheduler.add(tokens, greedy(5), 0);
  other.run();
  EXPECT_EQ(other.ends[continued].statistics.reused, 20);
  EXPECT_EQ(other.texts[continued], host.alone(tokens, greedy(5)));
  expect_error<UsageError>([&] { other.scheduler.save(continued); }, "has no cache to save: it has ended");
  const SavedTable cached = other.scheduler.save("", std::span(tokens).first(19));
  EXPECT_EQ(cached.length, 16) << "what is left of it in whole blocks";
  EXPECT_EQ(cached.blocks.size(), 4u);
  other.scheduler.clear_prefixes();
  EXPECT_EQ(other.scheduler.pool().used_blocks(), 0);
}

TEST(Scheduler, ContinuesRecurrentStatesFromSnapshots) {
  Host host({.blocks = 64, .block_size = 4, .state_slots = 4});
  SequenceOptions options = greedy(12);
  options.drafts = 4;
  const SequenceId first = host.scheduler.add(prompt_of(22), options, 0);
  host.run();
  EXPECT_EQ(host.texts[first], host.alone(prompt_of(22), options));
  Tokens longer = prompt_of(22);
  longer.push_back(3);
  const SequenceId second = host.scheduler.add(longer, options, 0);
  host.run();
  EXPECT_EQ(host.ends[second].statistics.reused, 20) << "where the prompt's last whole block ends";
  EXPECT_EQ(host.texts[second], host.alone(longer, options));

  // The snapshot is saved with the blocks before it, and restored elsewhere.
  const SavedTable saved = host.scheduler.save("", longer);
  EXPECT_EQ(saved.length, 20);
  ASSERT_NE(saved.state, no_slot);
  Host other({.blocks = 64, .block_size = 4, .state_slots = 4});
  const Restored restored = other.scheduler.restore("", longer, saved);
  ASSERT_EQ(restored.blocks.size(), 5u);
  ASSERT_NE(restored.state, no_slot);
  for (const RestoredBlock& block : restored.blocks)
    other.device().write_block(block.block, host.device().read_block(saved.blocks[block.saved]));
  other.device().state(restored.state) = host.device().state(saved.state);
  const SequenceId third = other.scheduler.add(longer, options, 0);
  other.run();
  EXPECT_EQ(other.ends[third].statistics.reused, 20);
  EXPECT_EQ(other.texts[third], host.alone(longer, options));
  EXPECT_EQ(other.scheduler.restore("", longer, saved).state, no_slot) << "it is there already";
  SavedTable without = saved;
  without.state = no_slot;
  expect_error<UsageError>([&] { host.scheduler.restore("", longer, without); }, "has no recurrent states");
}

// The snapshot is made before the step after the one that computed it.
TEST(Scheduler, SavesStatesThatAreStillToBeCopied) {
  Host host({.blocks = 64, .block_size = 4, .chunk = 8, .pipelined = false, .state_slots = 4});
  host.scheduler.add(prompt_of(22), greedy(4), 0);
  for (int i = 0; i < 3; ++i) host.step();
  const auto saved_state = [&] {
    const SavedTable saved = host.scheduler.save("", prompt_of(22));
    EXPECT_EQ(saved.length, 20);
    return host.device().state(saved.state);
  };
  const std::uint64_t before = saved_state();
  host.run();
  EXPECT_EQ(saved_state(), before);
}

// Neither what a pending copy reads nor what it writes can hold a restored state.
TEST(Scheduler, RestoresStatesBesideThoseThatAreStillToBeCopied) {
  const SchedulerOptions options{.blocks = 64, .block_size = 4, .chunk = 8, .pipelined = false, .state_slots = 2};
  Host host(options), other(options);
  host.scheduler.add(prompt_of(22, 5), greedy(4), 0);
  host.run();
  const SavedTable saved = host.scheduler.save("", prompt_of(22, 5));
  const SequenceId id = other.scheduler.add(prompt_of(22), greedy(4), 0);
  for (int i = 0; i < 3; ++i) other.step();
  other.scheduler.cancel(id, 0);  // its live state and the snapshot are free, or can be evicted
  EXPECT_EQ(other.scheduler.restore("", prompt_of(22, 5), saved).state, no_slot);
  other.scheduler.add({1}, greedy(1), 0);
  other.run();
  EXPECT_NE(other.scheduler.restore("", prompt_of(22, 5), saved).state, no_slot);
}

TEST(Scheduler, SequencesWaitForStateSlots) {
  Host host({.blocks = 64, .block_size = 4, .state_slots = 1});
  const SequenceId a = host.scheduler.add(prompt_of(9), greedy(4), 0),
                   b = host.scheduler.add(prompt_of(9, 2), greedy(4), 0);
  host.next();
  EXPECT_EQ(host.scheduler.running(), 1u);
  EXPECT_EQ(host.scheduler.waiting(), 1u);
  EXPECT_EQ(host.scheduler.find(a)->state(), SequenceState::decoding);
  EXPECT_EQ(host.scheduler.find(b)->state(), SequenceState::waiting);
}

}  // namespace
}  // namespace jerboa::serving::test
