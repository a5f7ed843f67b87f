#include <gtest/gtest.h>
#include <thread>

#include "runtime/regression.h"
#include "support/mixed_training.h"
#include "support/run_checks.h"
#include "support/small_gpt.h"
#include "support/source_folder.h"
#include "support/temp_folder.h"
#include "verify/train_goldens.h"

// Whole training runs and programs on WebGPU.
namespace jerboa::test {
namespace {

Device webgpu_with(bool fuse, bool plan, std::optional<float> sentinel = {}) {
  WebGpuOptions options;
  options.sentinel = sentinel;
  Target target = webgpu_target(Device::webgpu().backend());
  target.fuse = fuse;
  target.plan = plan;
  options.target = target;
  return Device::webgpu(options);
}

TEST(WebGpuTraining, GivesTheSameBitsWhateverMemoryHeldAndHoweverItIsPlanned) {
  const SmallTraining wanted = small_training(Device::webgpu());
  const auto expect_same = [&](const Device& device, const std::string& what) {
    const SmallTraining other = small_training(device);
    EXPECT_EQ(wanted.losses, other.losses) << what;
    EXPECT_TRUE(wanted.params == other.params) << what;
  };
  expect_same(Device::webgpu(), "again");
  expect_same(webgpu_with(true, true, 7e8f), "planned, large values");
  expect_same(webgpu_with(true, true, -3e-9f), "planned, small values");
  expect_same(webgpu_with(true, false, 7e8f), "unplanned, large values");
  expect_same(webgpu_with(true, false, -3e-9f), "unplanned, small values");
}

TEST(WebGpuTraining, FollowsTheReferenceFusedAndUnfused) {
  const SmallTraining wanted = small_training(Device::reference64());
  for (const bool fused : {true, false}) {
    const SmallTraining computed = small_training(webgpu_with(fused, true));
    for (std::size_t i = 0; i < wanted.losses.size(); ++i)
      EXPECT_NEAR(computed.losses[i], wanted.losses[i], 2e-4) << fused;
  }
}

TEST(WebGpuTraining, MixedPrecisionFollowsFullPrecision) { expect_mixed_follows_full(Device::webgpu()); }

TEST(WebGpuTraining, MixedPrecisionSkipsOverflowsAndRecovers) { expect_overflow_is_skipped(Device::webgpu()); }

TEST(WebGpuTraining, FiniteChecksLeaveOverflowsOfMixedPrecisionToTheScale) {
  expect_check_lets_the_scale_fall(Device::webgpu(), 1);
}

class MixedTrainGoldens : public testing::TestWithParam<const char*> {};

TEST_P(MixedTrainGoldens, HoldOnWebGpu) {
  const auto reports = verify_train_goldens(source_folder(JERBOA_SOURCE_DIR) / "tests/data/goldens" / GetParam(),
                                            Device::webgpu(), {}, Precision::mixed_f16);
  EXPECT_GT(reports.size(), 40u);
  for (const CaseReport& report : reports) EXPECT_TRUE(report.ok) << report.name << ": " << report.message;
}

INSTANTIATE_TEST_SUITE_P(Families, MixedTrainGoldens, testing::Values("train_gpt2"));
INSTANTIATE_TEST_SUITE_P(OtherForms, MixedTrainGoldens, testing::Values("train_llama", "train_qwen3"));

TEST(WebGpuTraining, ChecksNameWhatIsNotFiniteOrOutOfRange) {
  expect_finite_check(Device::webgpu());
  const TempFolder folder;
  expect_finite_check_of_a_program(Device::webgpu(), Target::webgpu_default(), folder / "run.jerboa");
  expect_finite_check_of_functions(Device::webgpu());
  expect_index_check(Device::webgpu());
}

TEST(WebGpuTraining, GoesOnFromACheckpointToTheSameBits) {
  const TempFolder folder;
  const Device device = Device::webgpu();
  auto trainer = small_trainer(device);
  trainer.step(small_batch(0));
  trainer.save(folder / "checkpoint");
  std::vector<double> wanted;
  for (int step = 1; step < 4; ++step) wanted.push_back(trainer.step(small_batch(step)).loss());

  auto loaded = small_trainer(device);
  loaded.prepare(small_batch(0));
  loaded.load(folder / "checkpoint");
  for (int step = 1; step < 4; ++step)
    EXPECT_EQ(loaded.step(small_batch(step)).loss(), wanted[static_cast<std::size_t>(step - 1)]);
  EXPECT_TRUE(everything(loaded.session()) == everything(trainer.session()));
}

TEST(WebGpuTraining, OfASavedProgramGivesTheSameBits) {
  const TempFolder folder;
  const Device device = Device::webgpu();
  auto trainer = small_trainer(device);
  trainer.step(small_batch(0));
  trainer.save(folder / "checkpoint");
  trainer.session().save_program(folder / "step.jerboa");
  Session program = Session::load_program(folder / "step.jerboa", device);
  program.load(folder / "checkpoint");
  for (int step = 1; step < 4; ++step)
    EXPECT_EQ(program.run(small_step, small_batch(step)).loss(), trainer.step(small_batch(step)).loss());
  EXPECT_TRUE(program.download_params() == trainer.session().download_params());
}

TEST(WebGpuTraining, AForwardSiblingSeesNewParameters) {
  auto trainer = small_trainer(Device::webgpu());
  trainer.prepare(small_batch(0));
  ForwardPass forward = trainer.compile_forward();
  const TensorMap inputs{{"ids", small_ids(3, 10, 0)}};
  HostTensor before = forward(inputs).get("output");
  for (int step = 0; step < 2; ++step) {
    trainer.step(small_batch(step));
    const HostTensor after = forward(inputs).get("output");
    EXPECT_NE(after, before);
    // The same as a separate session with these parameters.
    auto other = small_trainer(Device::webgpu());
    other.prepare(small_batch(0));
    other.session().upload_params(trainer.session().download_params());
    EXPECT_EQ(other.compile_forward()(inputs).get("output"), after);
    before = after;
  }
}

TEST(WebGpuProgram, ServesEveryLengthWithOneCompilation) {
  const Graph graph = small_forward_of_any_length();
  Session gpu(Device::webgpu(), {.seed = 1}), reference(Device::reference64(), {.seed = 1});
  gpu.add_entry("run", graph);
  reference.add_entry("run", graph);
  for (const std::int64_t t : {1, 2, 7, 16, 33, 40, 3, 39}) {
    const TensorMap inputs{{"ids", small_ids(2, t, 3)}};
    const HostTensor computed = gpu.run("run", inputs).get("output"),
                     wanted = reference.run("run", inputs).get("output");
    ASSERT_EQ(computed.shape(), wanted.shape());
    for (std::int64_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed.number(i), wanted.number(i), 1e-5) << t;
  }
}

TEST(WebGpuProgram, SwapsStatesThatAreEachOthersNextVersion) {
  Session session(Device::webgpu());
  session.add_entry("swap", trace([] {
                      const Tensor a = state_input("a", {3}), b = state_input("b", {3});
                      update(a, b);
                      update(b, a + b);
                      output("old", transpose(reshape(a, {3, 1}), {1, 0}));
                    }));
  session.upload_state("a", HostTensor({3}, {1, 2, 3}));
  session.upload_state("b", HostTensor({3}, {10, 20, 30}));
  const Result first = session.run("swap", {});
  session.run("swap", {});
  EXPECT_TRUE(first.get("old") == HostTensor({1, 3}, {1, 2, 3}));  // of the first run, though read later
  EXPECT_TRUE(session.download_state("a") == HostTensor({3}, {11, 22, 33}));
  EXPECT_TRUE(session.download_state("b") == HostTensor({3}, {21, 42, 63}));
}

// Threads

TensorMap regression_training(const Device& device, std::uint64_t seed) {
  Session session(device, {.seed = seed});
  session.add_entry("step", regression_step(true));
  for (int i = 0; i < 30; ++i) {
    const Result result = session.step(regression_batch(0.01f * static_cast<float>(i)), {.all_captures = true});
    if (i % 3 == 0) result.get("prediction");
  }
  return everything(session);
}

void expect_two_threads_as_one(const Device& first, const Device& second) {
  const TensorMap wanted[] = {regression_training(Device::webgpu(), 1), regression_training(Device::webgpu(), 2)};
  TensorMap found[2];
  std::thread other([&] { found[1] = regression_training(second, 2); });
  found[0] = regression_training(first, 1);
  other.join();
  EXPECT_TRUE(found[0] == wanted[0]);
  EXPECT_TRUE(found[1] == wanted[1]);
}

TEST(WebGpuThreads, TwoSessionsOnTwoDevices) { expect_two_threads_as_one(Device::webgpu(), Device::webgpu()); }

TEST(WebGpuThreads, TwoSessionsOnOneDevice) {
  const Device device = Device::webgpu();
  expect_two_threads_as_one(device, device);
}

TEST(WebGpuThreads, DevicesOpenAndCloseInSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<double> losses(3);
  for (double& loss : losses)
    threads.emplace_back([&loss] {
      for (int turn = 0; turn < 3; ++turn) {
        Session session(Device::webgpu(), {.seed = 1});
        session.add_entry("step", regression_step());
        loss = session.step(regression_batch()).loss();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const double loss : losses) EXPECT_EQ(loss, losses[0]);
}

}  // namespace
}  // namespace jerboa::test
