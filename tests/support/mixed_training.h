#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/small_gpt.h"
#include "support/temp_folder.h"

// Training in mixed precision on any device.
namespace jerboa::test {

inline Trainer<SmallGpt> mixed_trainer(const Device& device, Precision precision, LossScaling scaling = {},
                                       int accumulate = 1, bool check_finite = false) {
  return {SmallGpt{},
          next_token_loss,
          {.optimizer = AdamW{.lr = 1e-2, .clip_norm = 1},
           .device = device,
           .seed = 5,
           .accumulate = accumulate,
           .check_finite = check_finite,
           .precision = precision,
           .loss_scaling = scaling}};
}

/// The same data and seed in f32 and mixed: every product rounds its operands and results to 11 bits, a relative error
/// of 2^-11 each, which affects the loss of two such layers a few times.
inline void expect_mixed_follows_full(const Device& device) {
  auto full = mixed_trainer(device, Precision::full), mixed = mixed_trainer(device, Precision::mixed_f16);
  for (int step = 0; step < 6; ++step) {
    const double wanted = full.step(small_batch(step)).loss(), loss = mixed.step(small_batch(step)).loss();
    EXPECT_NEAR(loss, wanted, 16 * std::ldexp(wanted, -11)) << "step " << step;
    EXPECT_NE(loss, wanted) << "nothing was computed in f16";
  }
}

/// A scale that makes gradients overflow f16: updates are skipped and the scale halved until they no longer do.
inline void expect_overflow_is_skipped(const Device& device) {
  auto trainer = mixed_trainer(device, Precision::mixed_f16, {.growth_interval = 1000});
  trainer.step(small_batch(0));
  Session& session = trainer.session();
  session.upload_state(loss_scale_state, HostTensor(1e12f));
  const TensorMap before = session.download_params();
  const HostTensor moments = session.download_state("adam_m/tok.weight");
  trainer.step(small_batch(1));
  EXPECT_TRUE(session.download_params() == before);
  EXPECT_EQ(session.download_state("adam_m/tok.weight"), moments);
  EXPECT_EQ(session.download_state("step").item(), 1);
  EXPECT_EQ(session.download_state(loss_scale_state).item(), 1e12f / 2);
  int skipped = 1;
  while (session.download_params() == before && skipped < 60) {
    EXPECT_TRUE(std::isfinite(trainer.step(small_batch(1)).loss()));
    ++skipped;
  }
  EXPECT_LT(skipped, 40);
  for (const auto& [name, tensor] : session.download_params())
    for (const float value : tensor.f32()) ASSERT_TRUE(std::isfinite(value)) << name;
}

/// A finite check leaves overflowing gradients to the loss scale, and still finds everything else.
inline void expect_check_lets_the_scale_fall(const Device& device, int accumulate) {
  auto trainer = mixed_trainer(device, Precision::mixed_f16, {.initial = 1e9}, accumulate, true);
  trainer.prepare(small_batch(0));
  Session& session = trainer.session();
  const TensorMap before = session.download_params();
  for (int step = 0; step < 40 * accumulate && session.download_params() == before; ++step)
    ASSERT_NO_THROW(trainer.step(small_batch(0)));
  EXPECT_FALSE(session.download_params() == before);
  EXPECT_LT(session.download_state(loss_scale_state).item(), 1e9f);

  HostTensor table = session.download_param("tok.weight");
  table.set_number(0, NAN);
  session.upload_params({{"tok.weight", table}}, {.partial = true});
  expect_error<NotFiniteError>([&] { trainer.step(small_batch(0)); },
                               "tok.weight holds NaN or infinity before the run: it is a parameter");
}

/// If the scale cannot fall any further, a gradient that is not finite stops the run.
inline void expect_check_stops_at_the_least_scale(const Device& device) {
  auto trainer = mixed_trainer(device, Precision::mixed_f16, {.initial = 1e12, .least = 5e11}, 1, true);
  ASSERT_NO_THROW(trainer.step(small_batch(0)));
  expect_error<NotFiniteError>([&] { trainer.step(small_batch(0)); }, " produced NaN or infinity");
}

inline void expect_scale_grows(const Device& device) {
  auto trainer = mixed_trainer(device, Precision::mixed_f16, {.initial = 256, .growth_interval = 3});
  std::vector<double> scales;
  for (int step = 0; step < 7; ++step) scales.push_back(trainer.step(small_batch(step)).get("loss_scale").item());
  EXPECT_EQ(scales, (std::vector<double>{256, 256, 256, 512, 512, 512, 1024}));
}

}  // namespace jerboa::test
