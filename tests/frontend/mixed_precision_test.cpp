#include <limits>

#include <jerboa/base/float16.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/transform/half_copies.h>

#include "compile/initialize.h"
#include "support/expect_error.h"
#include "support/mixed_training.h"

namespace jerboa::test {
namespace {

TEST(MixedPrecision, FollowsFullPrecision) { expect_mixed_follows_full(Device::cpu()); }

TEST(MixedPrecision, RefreshesCopiesOfParametersThatOtherCodeWrote) {
  Session session(Device::cpu(1));
  const auto loss = [](const Inputs& in) {
    return mean(matmul(in["x"], param_input("weight", {2, 2}, {.init = Init::constant(1)})));
  };
  session.add_entry(
      "step", training_graph({{"x", {1, 2}, DType::f32}}, loss, Sgd{.lr = 0}, {}, {.precision = Precision::mixed_f16}));
  const TensorMap batch{{"x", HostTensor({1, 2}, {1, 1})}};
  EXPECT_EQ(session.step(batch).loss(), 2);
  session.storage("weight")->upload(HostTensor({2, 2}, {3, 3, 3, 3}));
  session.parameter_changed("weight");
  EXPECT_EQ(session.step(batch).loss(), 6);
  expect_error<UsageError>([&] { session.parameter_changed("bias"); }, "no parameter is named bias; available: weight");
}

// The results are some hundreds, whose squares f16 does not hold.
TEST(MixedPrecision, SquaresResultsOfProductsInTheLoss) {
  const auto loss_in = [](Precision precision) {
    Session session(Device::cpu(), {.seed = 3});
    const auto loss = [](const Inputs& in) {
      const Tensor y = matmul(in["x"], param_input("weight", {64, 64}, {.init = Init::uniform(1)}));
      return mean(y * y);
    };
    session.add_entry("step",
                      training_graph({{"x", {16, 64}, DType::f32}}, loss, Sgd{.lr = 0}, {}, {.precision = precision}));
    return session.step({{"x", detail::initial_values("x", DType::f32, {16, 64}, Init::uniform(100), 4)}}).loss();
  };
  const double wanted = loss_in(Precision::full);
  EXPECT_GT(wanted, 65504);
  EXPECT_NEAR(loss_in(Precision::mixed_f16), wanted, std::ldexp(wanted, -9));
}

TEST(MixedPrecision, SkipsUpdatesThatOverflowAndRecovers) { expect_overflow_is_skipped(Device::cpu()); }

TEST(MixedPrecision, FiniteChecksLeaveOverflowsToTheScale) {
  expect_check_lets_the_scale_fall(Device::cpu(), 1);
  expect_check_lets_the_scale_fall(Device::cpu(), 2);
  expect_check_stops_at_the_least_scale(Device::cpu());
}

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

// The f16 copies of parameters that products read are kept between steps.
TEST(MixedPrecision, KeepsCopiesOfParametersThatAreNeitherListedNorSaved) {
  const TempFolder folder;
  auto trainer = mixed_trainer(Device::cpu(), Precision::mixed_f16);
  trainer.step(small_batch(0));
  const Session& session = trainer.session();
  const std::string copied = "blocks.0.qkv.weight";
  EXPECT_NE(session.graph(small_step).find(half_copy_of(copied)), no_tensor);
  for (const std::string& name : session.state_names()) EXPECT_FALSE(half_copy_source(name)) << name;
  trainer.save(folder / "checkpoint");
  const SafeTensors saved = SafeTensors::open(checkpoint_file(folder / "checkpoint"));
  for (const std::string& name : saved.names()) EXPECT_EQ(name.find("f16/"), std::string::npos) << name;
  const HostTensor param = session.download_param(copied), copy = session.storage(half_copy_of(copied))->download();
  for (std::int64_t i = 0; i < param.size(); ++i)
    ASSERT_EQ(copy.number(i), f16_to_f32(f32_to_f16(static_cast<float>(param.number(i))))) << i;
}

// Whatever changes a parameter, the next step reads the new values.
TEST(MixedPrecision, RefreshesCopiesOfParametersThatWereUploadedLoadedOrReset) {
  const TempFolder folder;
  auto trainer = mixed_trainer(Device::cpu(), Precision::mixed_f16),
       other = mixed_trainer(Device::cpu(), Precision::mixed_f16);
  trainer.step(small_batch(0));
  trainer.save(folder / "one_step");
  const TensorMap params = trainer.session().download_params();
  const double wanted = trainer.step(small_batch(1)).loss();

  other.step(small_batch(7));  // other parameters, and the same state of dropout
  other.session().upload_params(params);
  EXPECT_EQ(other.step(small_batch(1)).loss(), wanted);
  other.load(folder / "one_step");
  EXPECT_EQ(other.step(small_batch(1)).loss(), wanted);
  other.session().reset();
  other.step(small_batch(0));
  EXPECT_EQ(other.step(small_batch(1)).loss(), wanted);
  other.session().reset_optimizer_state();
  EXPECT_TRUE(std::isfinite(other.step(small_batch(2)).loss()));
}

TEST(MixedPrecision, RefreshesCopiesOfParametersThatAnotherEntryUpdates) {
  Session session(Device::cpu(), {.seed = 2});
  const auto loss = [](const Inputs& in) {
    const Tensor y = matmul(in["x"], param_input("weight", {8, 8}, {.init = Init::uniform(1)}));
    return mean(y * y);
  };
  const InputSpecs specs{{"x", {4, 8}, DType::f32}};
  session.add_entry("mixed", training_graph(specs, loss, Sgd{.lr = 0.1}, {}, {.precision = Precision::mixed_f16}));
  session.add_entry("zero", trace([] {
                      const Tensor weight = param_input("weight", {8, 8}, {.init = Init::uniform(1)});
                      update(weight, weight * 0);
                    }));
  HostTensor ones(DType::f32, {4, 8});
  std::fill(ones.f32().begin(), ones.f32().end(), 1.0f);
  const TensorMap batch{{"x", ones}};
  EXPECT_GT(session.run("mixed", batch).loss(), 0);
  session.run("zero", {});
  EXPECT_EQ(session.run("mixed", batch).loss(), 0);
}

TEST(MixedPrecision, RefusesAScalingThatMakesNoSense) {
  const double infinite = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<LossScaling, std::string>> refused{
      {{.initial = 0}, "loss_scaling.initial is 0,"},
      {{.initial = -2}, "loss_scaling.initial is -2,"},
      {{.initial = NAN}, "loss_scaling.initial is nan,"},
      {{.initial = infinite}, "loss_scaling.initial is inf,"},
      {{.initial = 1e39}, "loss_scaling.initial is 1e+39,"},
      {{.initial = 1.7e38}, "loss_scaling.initial is 1.7e+38,"},  // its inverse is subnormal
      {{.initial = 1e-40, .least = 1e-40}, "loss_scaling.initial is 1e-40,"},
      {{.least = -1}, "loss_scaling.least is -1,"},
      {{.least = infinite}, "loss_scaling.least is inf,"},
      {{.initial = 2, .least = 4}, "loss_scaling.least is 4, which is more than loss_scaling.initial, 2"},
      {{.growth_interval = 0}, "loss_scaling.growth_interval is 0,"}};
  for (const auto& [scaling, message] : refused) {
    auto trainer = mixed_trainer(Device::cpu(), Precision::mixed_f16, scaling);
    expect_error<UsageError>([&] { trainer.step(small_batch(0)); }, message);
  }
}

// One parameter whose gradient is the input.
Session scaled_slope(const LossScaling& scaling, double lr = 1) {
  Session session(Device::cpu(1));
  const auto loss = [](const Inputs& in) { return sum(param_input("slope", {1}) * in["x"]); };
  session.add_entry("step", training_graph({{"x", {1}, DType::f32}}, loss, Sgd{.lr = lr}, {},
                                           {.precision = Precision::mixed_f16, .loss_scaling = scaling}));
  return session;
}

TEST(MixedPrecision, StopsDoublingTheScaleBeforeItsInverseIsSubnormal) {
  Session session = scaled_slope({.initial = 0x1p123, .growth_interval = 2}, 0x1p80);
  const TensorMap none{{"x", HostTensor({1}, {0})}}, small{{"x", HostTensor({1}, {0x1p-80f})}},
      large{{"x", HostTensor({1}, {1})}};
  std::vector<double> scales;
  for (int step = 0; step < 12; ++step) scales.push_back(session.step(none).get("loss_scale").item());
  EXPECT_EQ(scales, (std::vector<double>{0x1p123, 0x1p123, 0x1p124, 0x1p124, 0x1p125, 0x1p125, 0x1p126, 0x1p126,
                                         0x1p126, 0x1p126, 0x1p126, 0x1p126}));
  session.step(small);
  EXPECT_EQ(session.download_param("slope").item(), -1);
  session.step(large);
  EXPECT_EQ(session.download_state(loss_scale_state).item(), 0x1p125) << "an overflow halves it as ever";
  EXPECT_EQ(session.download_param("slope").item(), -1);
}

TEST(MixedPrecision, RefusesScalesThatNoTrainingReaches) {
  Session session = scaled_slope({});
  for (const float scale : {INFINITY, NAN, 0.0f, -1.0f, 1.7e38f, 1e-40f})
    expect_error<UsageError>([&] { session.upload_state(loss_scale_state, HostTensor(scale)); }, "loss_scale is ");
  EXPECT_EQ(session.download_state(loss_scale_state).item(), 65536);
}

// As they were written before growth had a limit.
TEST(MixedPrecision, RefusesCheckpointsWhoseScaleIsInfinite) {
  const TempFolder folder;
  Session session = scaled_slope({});
  session.save(folder / "sound");
  const SafeTensors sound = SafeTensors::open(checkpoint_file(folder / "sound"));
  const HostTensor infinite(INFINITY);
  std::vector<TensorView> tensors;
  for (const std::string& name : sound.names()) {
    tensors.push_back(sound.view(name));
    if (name.ends_with(loss_scale_state)) tensors.back().bytes = infinite.bytes();
  }
  const auto broken = folder / "broken.safetensors";
  write_safetensors(broken, tensors, sound.metadata());

  session.upload_param("slope", HostTensor({1}, {5}).bytes());
  const std::string message = "broken.safetensors: loss_scale is inf, ";
  expect_error<FileError>([&] { session.load(broken); }, message);
  EXPECT_EQ(session.download_param("slope").item(), 5);
  Session later(Device::cpu(1));
  later.load(broken, {.keep_unknown = true});
  expect_error<FileError>([&] { later.add_entry("step", session.graph("step")); }, message);
}

}  // namespace
}  // namespace jerboa::test
