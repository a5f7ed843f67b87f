#include "support/expect_error.h"
#include "support/mixed_training.h"

namespace jerboa::test {
namespace {

TEST(MixedPrecision, FollowsFullPrecision) { expect_mixed_follows_full(Device::cpu()); }

TEST(MixedPrecision, SkipsUpdatesThatOverflowAndRecovers) { expect_overflow_is_skipped(Device::cpu()); }

TEST(MixedPrecision, DoublesTheScaleAfterEnoughUpdates) { expect_scale_grows(Device::cpu()); }

TEST(MixedPrecision, AccumulatesGradients) {
  auto whole = mixed_trainer(Device::cpu(), Precision::mixed_f16);
  auto parts = mixed_trainer(Device::cpu(), Precision::mixed_f16, {}, 2);
  for (int step = 0; step < 3; ++step) {
    const double wanted = whole.step(small_batch(step)).loss();
    parts.step(small_batch(step));
    EXPECT_NEAR(parts.step(small_batch(step)).loss(), wanted, 16 * std::ldexp(wanted, -11));
  }
  parts.session().upload_state(loss_scale_state, HostTensor(1e12f));
  const TensorMap before = parts.session().download_params();
  for (int part = 0; part < 2; ++part) parts.step(small_batch(9));
  EXPECT_TRUE(parts.session().download_params() == before);
  for (const auto& [name, grad] : parts.session().download_param_grads())
    for (const float value : grad.f32()) ASSERT_EQ(value, 0) << name;
}

TEST(MixedPrecision, SharesCheckpointsWithFullPrecision) {
  const TempFolder folder;
  auto mixed = mixed_trainer(Device::cpu(), Precision::mixed_f16);
  mixed.step(small_batch(0));
  mixed.save(folder / "mixed");
  auto full = mixed_trainer(Device::cpu(), Precision::full);
  full.load(folder / "mixed");
  EXPECT_TRUE(full.session().download_params() == mixed.session().download_params());
  full.step(small_batch(1));
  full.save(folder / "full");
  auto again = mixed_trainer(Device::cpu(), Precision::mixed_f16);
  again.load(folder / "full");
  EXPECT_TRUE(again.session().download_params() == full.session().download_params());
  EXPECT_TRUE(std::isfinite(again.step(small_batch(2)).loss()));
}

TEST(MixedPrecision, RefusesAScalingThatMakesNoSense) {
  for (const LossScaling& scaling :
       {LossScaling{.initial = 0}, LossScaling{.growth_interval = 0}, LossScaling{.least = -1}}) {
    auto trainer = mixed_trainer(Device::cpu(), Precision::mixed_f16, scaling);
    expect_error<UsageError>([&] { trainer.step(small_batch(0)); }, "scales must be positive");
  }
}

}  // namespace
}  // namespace jerboa::test
