// The code of docs/devices.md: what it says must compile, and do what it says.
#include <gtest/gtest.h>
#include <iostream>

#include "runtime/regression.h"
#include "support/small_gpt.h"
#include "support/temp_folder.h"
#include "webgpu/library.h"

namespace jerboa::test {
namespace {

using Gpt = SmallGpt;

TEST(DevicesGuide, Recovery) {
  const TempFolder folder;
  constexpr std::int64_t steps = 7, every = 2, lost_at = 5;
  const auto train = [&](const std::filesystem::path& checkpoint, bool lose) {
    Backend* backend = nullptr;
    int asked = 0;
    const auto batch = [&](std::int64_t step) {
      if (lose && step == lost_at && ++asked == 1) force_device_loss(*backend);
      return small_batch(static_cast<int>(step));
    };

    auto start = [&] {
      const TrainerOptions options{.device = Device::webgpu(), .seed = 1};
      auto trainer = std::make_unique<Trainer<Gpt>>(Gpt{}, next_token_loss, options);
      if (std::filesystem::exists(checkpoint)) trainer->load(checkpoint);
      return trainer;
    };
    auto trainer = start();

    backend = &trainer->session().device().backend();

    for (auto step = trainer->steps(); step < steps; step = trainer->steps()) {
      try {
        trainer->step(batch(step));
        if (trainer->steps() % every == 0) trainer->save(checkpoint);
      } catch (const DeviceLostError& error) {
        std::cerr << error.what() << '\n';
        trainer = start();
      }
    }

    EXPECT_EQ(asked, lose ? 2 : 0);
    return everything(trainer->session());
  };
  EXPECT_TRUE(train(folder / "broken", true) == train(folder / "whole", false));
}

TEST(DevicesGuide, Handles) {
  Trainer trainer(Gpt{}, next_token_loss, {.device = Device::webgpu()});
  trainer.prepare(small_batch(0));
  Session& session = trainer.session();
  const auto find = [&] {
    const WebGpuHandles handles = webgpu_handles(session.device().backend());    // instance, device, queue
    const WebGpuBuffer weights = webgpu_buffer(*session.storage("tok.weight"));  // buffer, offset, bytes
    const std::scoped_lock lock(*handles.mutex);                                 // while other threads use the device

    return std::pair(handles.device, weights.buffer);
  };
  EXPECT_NE(find().first, nullptr);
  EXPECT_NE(find().second, nullptr);

  session.parameter_changed("tok.weight");
}

TEST(DevicesGuide, Profiles) {
  const TempFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  Session session(Device::webgpu());
  session.add_entry("step", regression_step());
  const TensorMap batch = regression_batch();

  session.set_profiling("step", true);
  session.step(batch);
  std::cout << print(session.profile("step"));        // a table: calls, milliseconds, share
  write_trace(session.profile("step"), "step.json");  // for ui.perfetto.dev or chrome://tracing

  EXPECT_TRUE(std::filesystem::exists("step.json"));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace jerboa::test
