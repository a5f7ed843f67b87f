#include <deque>
#include <gtest/gtest.h>
#include <map>

#include <jerboa/serving/scheduler.h>

#include "serving/fake_model.h"

// The code of docs/serving.md, run with a model without weights.
namespace jerboa::serving::test {
namespace {

double clock() {
  static double time = 0;
  return time += 0.001;
}

TEST(ServingGuide, TheHostsLoop) {
  const SchedulerOptions options{.blocks = 64, .block_size = 8, .context = 256, .max_rows = 16};
  FakeDevice device(options, 1);
  const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5}, other_prompt = {3, 4, 5, 6};
  std::map<SequenceId, std::vector<std::int32_t>> texts;
  const auto show = [&](const Event& event) {
    if (event.token) texts[event.id].push_back(*event.token);
  };

  Scheduler scheduler(options);
  const SequenceId first = scheduler.add(prompt, {.max_tokens = 32, .sampling = {.temperature = 0}}, clock());
  const SequenceId second = scheduler.fork(first, {.max_tokens = 32, .sampling = {.seed = 2}}, clock());
  const SequenceId third = scheduler.add(other_prompt, {.max_tokens = 8, .drafts = 4}, clock());

  std::deque<Step> submitted;
  while (scheduler.has_work()) {
    while (std::optional<Step> step = scheduler.next(clock())) {
      device.submit(*step);
      submitted.push_back(std::move(*step));
    }
    for (const Event& event : scheduler.take_events()) show(event);
    if (submitted.empty()) continue;  // all that was left has just ended, by its deadline
    for (const Event& event : scheduler.complete(submitted.front(), device.wait(), clock())) show(event);
    submitted.pop_front();
  }

  const auto alone = [&](const std::vector<std::int32_t>& text, const SequenceOptions& settings) {
    return write_alone(text, settings, false, scheduler.context(), false).tokens;
  };
  EXPECT_EQ(texts[first], alone(prompt, {.max_tokens = 32, .sampling = {.temperature = 0}}));
  EXPECT_EQ(texts[second], alone(prompt, {.max_tokens = 32, .sampling = {.seed = 2}}));
  EXPECT_EQ(texts[third], alone(other_prompt, {.max_tokens = 8}));
}

}  // namespace
}  // namespace jerboa::serving::test
