#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <set>

#include <jerboa/base/random.h>
#include <jerboa/serving/scheduler.h>

#include "serving/fake_model.h"

// Random schedules: whatever arrives, forks, is cancelled, preempted, drafted, carried over, saved or restored, every
// text is the one that the model generates alone, and at the end the cache is empty.
namespace jerboa::serving::test {
namespace {

struct Expected {
  Text text;
  std::vector<std::int32_t> prompt;
  SequenceOptions options;
  Text seen;
  bool is_finished = false;
  std::int64_t added_in = 0;
  bool on_host = false;
};

class Schedule {
 public:
  explicit Schedule(std::uint64_t seed, const std::optional<SchedulerOptions>& options = {})
      : random_(seed),
        options_(options ? *options : random_options()),
        scheduler_(options_),
        device_(options_, random_.next()) {}

  void run() { run(1 + below(24), 1); }
  void run(int arrivals, int crowd) {
    for (int left = arrivals; left > 0 || scheduler_.has_work();) {
      now_ += 1;
      if (left > 0 && (below(3) == 0 || !scheduler_.has_work()))
        for (int now_too = std::min(left, 1 + below(crowd)); now_too > 0; --now_too, --left) arrive();
      peak_ = std::max(peak_, scheduler_.running());
      if (below(30) == 0) cancel();
      step();
      if (::testing::Test::HasFailure()) return;
      ASSERT_LT(now_, 20000) << "it does not come to an end";
    }
    while (!submitted_.empty()) complete();
    give_back();
    take(scheduler_.take_events());
    for (const auto& [id, expected] : texts_) EXPECT_TRUE(expected.is_finished) << "sequence " << id;
    EXPECT_EQ(scheduler_.running() + scheduler_.waiting(), 0u);
    EXPECT_EQ(scheduler_.prefixes().reclaimable(), scheduler_.prefixes().blocks());
    scheduler_.clear_prefixes();
    EXPECT_EQ(scheduler_.pool().used_blocks(), 0) << "blocks leak";
    for (std::size_t group = 0; group < options_.windowed.size(); ++group)
      EXPECT_EQ(scheduler_.windowed_pool(group).used_blocks(), 0) << "blocks of windows leak";
    EXPECT_EQ(scheduler_.slots().used_slots(), 0) << "state slots leak";
  }

  const SchedulerStatistics& statistics() const { return scheduler_.statistics(); }
  std::size_t peak() const { return peak_; }
  std::int64_t restored() const { return restored_; }  // tokens
  int reserved() const { return reserved_count_; }

 private:
  int below(int bound) { return static_cast<int>(random_.below(static_cast<std::uint64_t>(bound))); }

  SchedulerOptions random_options() {
    SchedulerOptions options;
    options.block_size = 1 + below(6);
    options.blocks = (12 + below(120)) / options.block_size + 2;
    options.context = below(3) == 0 ? 0 : 20 + below(40);
    options.max_rows = 1 + below(10);
    options.chunk = 1 + below(12);
    options.prefill_tokens = 1 + below(24);
    options.mixed_time = below(2) * (1 + below(options.chunk));
    options.always_mixed = options.mixed_time > 0 && below(3) == 0;
    options.prefill_cells = below(3) == 0 ? options.chunk + below(3 * options.chunk) : 0;
    options.pipelined = below(4) != 0;
    options.prefix_cache = below(5) != 0;
    options.vocabulary = vocabulary;
    options.device_samples = below(8) != 0;
    options.device_masks = below(2) == 0;
    options.device_penalises = below(2) == 0;
    options.state_slots = below(4) == 0 ? 1 + below(2 * options.max_rows) : 0;
    options.window = options.state_slots == 0 && below(3) == 0 ? 1 + below(16) : 0;
    if (options.state_slots == 0 && below(2) == 0) add_windowed(options);
    if (below(4) == 0) options.row_buckets = {3, options.max_rows + 3};
    if (below(4) == 0) options.time_buckets = {1, 5, options.chunk + 5};
    return options;
  }

  // One or two groups of layers with windows, some of them with room for hardly more than one text.
  void add_windowed(SchedulerOptions& options) {
    for (int groups = 1 + below(2); groups > 0; --groups) {
      const int window = 1 + below(16), most = most_windowed_blocks(options, window);
      options.windowed.push_back({window, std::min(options.blocks, most + below(3 * most))});
    }
  }

  std::vector<std::int32_t> random_prompt() {
    // Few beginnings, so that prefixes are shared.
    SplitMix beginning(static_cast<std::uint64_t>(below(3)));
    const auto most = static_cast<int>(scheduler_.context());
    const int size = 1 + below(std::min(most, 30)), shared = below(size + 1);
    std::vector<std::int32_t> prompt;
    for (int i = 0; i < size; ++i)
      prompt.push_back(i < shared ? static_cast<std::int32_t>(1 + beginning.below(vocabulary - 1))
                                  : 1 + below(vocabulary - 1));
    return prompt;
  }

  SequenceOptions random_sequence() {
    SequenceOptions options;
    options.max_tokens = 1 + below(30);
    options.sampling = {.temperature = below(2) == 0 ? 0.0f : 0.7f, .seed = random_.next()};
    if (below(4) == 0) options.sampling.repetition_penalty = 1.3f;
    if (below(6) == 0) options.sampling.presence_penalty = 0.4f;
    if (below(6) == 0) options.sampling.frequency_penalty = 0.3f;
    if (below(3) == 0) options.sampling.penalty_window = 1 + below(12);
    if (below(8) == 0) options.sampling.logit_bias = {{3, 1.5f}, {5, -2.0f}, {3, 0.5f}};
    if (below(8) == 0) options.sampling.banned_tokens = {4};
    if (below(3) != 0) options.end_tokens = {end_token};
    if (below(2) == 0) options.drafts = 1 + below(6);
    if (below(3) == 0) options.draft_source = DraftSource::host;
    if (below(5) == 0) options.constraint = [] { return std::make_unique<NoRepetition>(); };
    if (below(3) == 0) options.name_space = "adapter";
    if (below(6) == 0) {
      const SamplerOptions sampling = options.sampling;
      options.sampler = [sampling] { return std::make_unique<Sampler>(sampling); };
    }
    if (below(4) == 0) options.logprobs = below(5);
    if (below(12) == 0) options.deadline = now_ + below(20);
    return options;
  }

  // A new text, or a fork of one that runs.
  void arrive() {
    SequenceOptions options = random_sequence();
    std::vector<std::int32_t> prompt = random_prompt();
    SequenceId id = 0;
    const SequenceId parent = below(3) == 0 ? random_id() : 0;
    if (const Sequence* sequence = scheduler_.find(parent);
        sequence != nullptr && sequence->length() <= scheduler_.context()) {
      prompt.assign(sequence->tokens().begin(), sequence->tokens().end());
      if (below(2) == 0) options.name_space = sequence->options().name_space;
      id = scheduler_.fork(parent, options, now_);
    } else {
      id = scheduler_.add(prompt, options, now_);
    }
    const bool on_host = scheduler_.find(id)->samples_on_host();
    const Text text =
        write_alone(prompt, options, on_host, scheduler_.context(), options_.state_slots > 0, windows_of(options_));
    texts_[id] = {
        .text = text, .prompt = prompt, .options = options, .seen = {}, .added_in = steps_, .on_host = on_host};
  }

  SequenceId random_id() {
    return texts_.empty() ? 0 : std::next(texts_.begin(), below(static_cast<int>(texts_.size())))->first;
  }

  void cancel() {
    const SequenceId id = random_id();
    if (scheduler_.cancel(id, now_)) take(scheduler_.take_events());
  }

  // Guesses that go wrong somewhere.
  void suggest() {
    for (const SequenceId id : scheduler_.awaiting_drafts()) {
      const std::vector<std::int32_t>& text = texts_.at(id).text.tokens;
      const auto so_far = static_cast<std::size_t>(scheduler_.find(id)->generated());
      std::vector<std::int32_t> draft(text.begin() + static_cast<std::ptrdiff_t>(std::min(so_far, text.size())),
                                      text.end());
      draft.resize(static_cast<std::size_t>(below(8)), 1);
      if (!draft.empty() && below(2) == 0)
        draft[static_cast<std::size_t>(below(static_cast<int>(draft.size())))] = 1 + below(vocabulary - 1);
      scheduler_.suggest(id, draft);
    }
  }

  // The content of blocks, as a host reads it from those that one scheduler lists and writes it to those of another.
  using Content = std::vector<std::vector<std::uint64_t>>;
  Content read(const std::vector<Block>& blocks, int group = FakeDevice::no_group) {
    Content content;
    for (const Block block : blocks) {
      EXPECT_NE(block, no_block);
      if (block != no_block) content.push_back(device_.read_block(block, group));
    }
    return content;
  }
  void write(const std::vector<RestoredBlock>& blocks, const Content& content, int group = FakeDevice::no_group) {
    std::set<Block> written;
    for (const RestoredBlock& block : blocks) {
      EXPECT_TRUE(written.insert(block.block).second) << "two blocks go into one";
      device_.write_block(block.block, content.at(block.saved), group);
    }
  }

  // Saves the cached part of a text and restores it, possibly after it was evicted, or into another name space.
  void save_and_restore() {
    if (!submitted_.empty() || texts_.empty()) return;
    const Expected& of = texts_.at(random_id());
    std::vector<std::int32_t> tokens = of.prompt;
    tokens.insert(tokens.end(), of.text.tokens.begin(), of.text.tokens.end());
    tokens.resize(static_cast<std::size_t>(below(static_cast<int>(tokens.size()) + 1)));
    const SavedTable saved = scheduler_.save(of.options.name_space, tokens);
    const Content blocks = read(saved.blocks);
    std::vector<Content> windowed;
    for (const SavedWindow& window : saved.windowed)
      windowed.push_back(read(window.blocks, static_cast<int>(windowed.size())));
    const std::uint64_t state = saved.state == no_slot ? 0 : device_.state(saved.state);
    tokens.resize(static_cast<std::size_t>(saved.length));

    if (below(2) == 0) scheduler_.clear_prefixes();
    const std::string name_space = below(2) == 0 ? of.options.name_space : "adapter";
    const std::int64_t before = scheduler_.save(name_space, tokens).length;
    const Restored restored = scheduler_.restore(name_space, tokens, saved);
    EXPECT_EQ(scheduler_.save(name_space, tokens).length, before + restored.tokens);
    write(restored.blocks, blocks);
    for (std::size_t group = 0; group < windowed.size(); ++group)
      write(restored.windowed.at(group), windowed[group], static_cast<int>(group));
    if (restored.state != no_slot) device_.state(restored.state) = state;
    restored_ += restored.tokens;
  }

  // Reserves blocks for a text outside of the scheduler. Nothing else may write to them until they are released.
  void reserve() {
    if (reserved_ || !(reserved_ = scheduler_.reserve(1 + below(static_cast<int>(scheduler_.context()))))) return;
    ++reserved_count_;
    reserved_until_ = steps_ + below(4);
    mark_reserved([this](Block block, int group) {
      const std::vector<std::uint64_t> mark(device_.read_block(block, group).size(), random_.next());
      device_.write_block(block, mark, group);
      marks_[{group, block}] = mark;
    });
  }

  void give_back() {
    if (!reserved_) return;
    mark_reserved([this](Block block, int group) {
      EXPECT_EQ(device_.read_block(block, group), (marks_[{group, block}])) << "a sequence has written to it";
    });
    marks_.clear();
    reserved_.reset();
  }

  void mark_reserved(const std::function<void(Block block, int group)>& visit) {
    for (const Block block : reserved_->table()) visit(block, FakeDevice::no_group);
    for (std::size_t group = 0; group < options_.windowed.size(); ++group)
      for (const Block block : reserved_->windowed(group)) visit(block, static_cast<int>(group));
  }

  void step() {
    if (below(6) == 0) save_and_restore();
    if (below(40) == 0) reserve();
    if (steps_ >= reserved_until_) give_back();
    suggest();
    const bool was_idle = submitted_.empty();
    std::optional<Step> next = scheduler_.next(now_);
    take(scheduler_.take_events());
    if (!next) {
      if (was_idle && reserved_) return give_back();
      if (was_idle) {
        ASSERT_TRUE(!scheduler_.has_work() || !scheduler_.awaiting_drafts().empty()) << "stuck";
      }
      if (!submitted_.empty()) complete();
      return;
    }
    ++steps_;
    check_progress();
    check_blocks(*next);
    device_.submit(*next);
    submitted_.push_back(std::move(*next));
    if (submitted_.size() > 2 || below(2) == 0) complete();
  }

  // The oldest text makes progress whatever arrives, so that none waits forever.
  void check_progress() {
    const auto oldest =
        std::find_if(texts_.begin(), texts_.end(), [](const auto& text) { return !text.second.is_finished; });
    if (oldest == texts_.end()) return;
    if (oldest->first != oldest_) oldest_since_ = steps_;
    oldest_ = oldest->first;
    const std::int64_t needs = std::ssize(oldest->second.prompt) + oldest->second.options.max_tokens;
    EXPECT_LE(steps_ - std::max(oldest_since_, oldest->second.added_in), 20 * needs) << "sequence " << oldest_;
  }

  // A step writes only to blocks that a single sequence holds.
  void check_blocks(const Step& step) {
    for (std::size_t row = 0; row < step.plan.size(); ++row)
      for (std::int64_t position = step.plan[row].start; position < step.plan[row].start + step.plan[row].count;
           ++position) {
        const auto index = static_cast<std::size_t>(position / options_.block_size);
        const std::size_t at = row * static_cast<std::size_t>(step.blocks) + index;
        EXPECT_EQ(scheduler_.pool().references(step.table.at(at)), 1) << "a step writes to a shared block";
        for (std::size_t group = 0; group < step.windowed.size(); ++group)
          EXPECT_EQ(scheduler_.windowed_pool(group).references(step.windowed[group].table.at(at)), 1)
              << "a step writes to a shared block of layers with a window";
      }
  }

  void complete() {
    StepResults results = device_.wait();
    if (below(150) == 0)
      take(scheduler_.fail(submitted_.front(), "lost", now_));
    else if (below(150) == 0)
      take(scheduler_.refuse(submitted_.front(), "lost", now_));
    else
      take(scheduler_.complete(submitted_.front(), std::move(results), now_));
    submitted_.pop_front();
  }

  void take(const std::vector<Event>& events) {
    for (const Event& event : events) {
      Expected& expected = texts_.at(event.id);
      EXPECT_FALSE(expected.is_finished) << "an event after the end of sequence " << event.id;
      if (event.token) expected.seen.tokens.push_back(*event.token);
      check_logprobs(event, expected);
      if (!event.finished) continue;
      expected.is_finished = true;
      EXPECT_EQ(event.error, *event.finished == FinishReason::failed ? "lost" : "");
      expected.seen.reason = *event.finished;
      const bool is_cut = *event.finished == FinishReason::cancelled || *event.finished == FinishReason::deadline ||
                          *event.finished == FinishReason::failed;
      if (is_cut) {
        ASSERT_LE(expected.seen.tokens.size(), expected.text.tokens.size());
        expected.text.tokens.resize(expected.seen.tokens.size());
        expected.text.reason = *event.finished;
      }
      EXPECT_EQ(expected.seen.tokens, expected.text.tokens) << "sequence " << event.id;
      EXPECT_EQ(name(expected.seen.reason), name(expected.text.reason)) << "sequence " << event.id;
      EXPECT_EQ(event.statistics.tokens, std::ssize(expected.seen.tokens));
    }
  }

  void check_logprobs(const Event& event, const Expected& expected) {
    EXPECT_EQ(event.logprobs.has_value(), event.token && expected.options.logprobs);
    if (!event.logprobs) return;
    const int most = expected.on_host ? vocabulary : 3;
    EXPECT_EQ(std::ssize(event.logprobs->likeliest), std::min(*expected.options.logprobs, most));
    if (expected.on_host) {
      EXPECT_LT(event.logprobs->drawn, 0);
      return;
    }
    EXPECT_EQ(event.logprobs->drawn, static_cast<float>(*event.token));
    for (const auto& [token, logprob] : event.logprobs->likeliest) EXPECT_EQ(token, *event.token);
  }

  SplitMix random_;
  SchedulerOptions options_;
  Scheduler scheduler_;
  FakeDevice device_;
  std::deque<Step> submitted_;
  std::optional<TextBlocks> reserved_;
  std::int64_t reserved_until_ = 0;  // this step
  std::map<std::pair<int, Block>, std::vector<std::uint64_t>> marks_;
  int reserved_count_ = 0;
  std::int64_t restored_ = 0;
  std::map<SequenceId, Expected> texts_;
  double now_ = 0;
  std::int64_t steps_ = 0;
  std::size_t peak_ = 0;   // sequences that ran at once
  SequenceId oldest_ = 0;  // of those that have not ended, and the step since when it is
  std::int64_t oldest_since_ = 0;
};

TEST(Soak, EveryTextIsTheOneGeneratedAlone) {
  SchedulerStatistics sum;
  std::int64_t restored = 0, reserved = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(seed);
    schedule.run();
    if (HasFailure()) return;
    sum.finished += schedule.statistics().finished;
    sum.preemptions += schedule.statistics().preemptions;
    sum.accepted += schedule.statistics().accepted;
    sum.drafted += schedule.statistics().drafted;
    sum.reused += schedule.statistics().reused;
    sum.steps += schedule.statistics().steps;
    restored += schedule.restored();
    reserved += schedule.reserved();
  }
  // The schedules must meet what they are meant to test.
  EXPECT_GT(sum.finished, 60000);
  EXPECT_GT(sum.preemptions, 4000);
  EXPECT_GT(sum.accepted, 10000);
  EXPECT_GT(sum.drafted, sum.accepted + 10000);
  EXPECT_GT(sum.reused, 10000);
  EXPECT_GT(restored, 10000);
  EXPECT_GT(reserved, 1000);
  RecordProperty("steps", std::to_string(sum.steps));
  std::cout << sum.finished << " texts in " << sum.steps << " steps, " << sum.preemptions << " preemptions, "
            << sum.accepted << " of " << sum.drafted << " guesses accepted, " << sum.reused << " tokens reused, "
            << restored << " restored, " << reserved << " texts beside them\n";
}

TEST(Soak, SixtyFourSequencesAtOnce) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Schedule schedule(seed, SchedulerOptions{.blocks = seed < 6 ? 900 : 300,
                                             .block_size = 4,
                                             .context = 64,
                                             .max_rows = 64,
                                             .chunk = 16,
                                             .prefill_tokens = 64,
                                             .mixed_time = seed % 2 == 0 ? 0 : 4,
                                             .vocabulary = vocabulary,
                                             .device_masks = seed % 3 == 0,
                                             .device_penalises = seed % 5 != 0,
                                             .state_slots = seed % 4 == 3 ? 80 : 0});
    schedule.run(400, 64);
    if (HasFailure()) return;
    EXPECT_EQ(schedule.statistics().finished, 400);
    EXPECT_GE(schedule.peak(), seed < 6 ? 64u : 20u);
  }
}

}  // namespace
}  // namespace jerboa::serving::test
