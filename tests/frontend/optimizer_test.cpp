#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>
#include <jerboa/transform/optimizer.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

/// One parameter "w" whose gradient is whatever the input "g" is: the loss is sum(w * g).
class Descent {
 public:
  explicit Descent(const Optimizer& optimizer, Shape shape = {}, bool decay = true,
                   const Device& device = Device::reference())
      : module_(compile(
            training_graph(
                {{"g", shape}},
                [&](const Inputs& in) { return sum(param_input("w", shape, {.decay = decay}) * in["g"]); }, optimizer),
            {.device = device})) {}

  Descent& at(double w) {
    session().upload_params({{"w", HostTensor(static_cast<float>(w))}});
    return *this;
  }
  /// w after a step with this gradient.
  double step(double gradient) {
    module_.step({{"g", HostTensor(static_cast<float>(gradient))}});
    return session().download_param("w").item();
  }
  HostTensor step(const HostTensor& gradient) {
    module_.step({{"g", gradient}});
    return session().download_param("w");
  }
  Session& session() { return module_.session(); }

 private:
  Module module_;
};

// Adam in f64, as in its paper.
struct ExactAdam {
  double beta1, beta2, eps, lr, m = 0, v = 0;

  double change(double g, double step) {
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double corrected_m = m / (1 - std::pow(beta1, step)), corrected_v = v / (1 - std::pow(beta2, step));
    return -lr * corrected_m / (std::sqrt(corrected_v) + eps);
  }
};

TEST(Adam, BiasCorrectionIsExactAtEveryStep) {
  for (const double beta2 : {0.999, 0.95, 0.99999})
    for (const int step : {1, 2, 10, 1000, 100000}) {
      ExactAdam exact{
          .beta1 = 0.9, .beta2 = beta2, .eps = 1e-8, .lr = 1e-3, .m = step == 1 ? 0 : 0.02, .v = step == 1 ? 0 : 0.003};
      Descent descent(Adam{.lr = 1e-3, .beta2 = beta2});
      descent.session().upload_state("adam_m/w", HostTensor(static_cast<float>(exact.m)));
      descent.session().upload_state("adam_v/w", HostTensor(static_cast<float>(exact.v)));
      descent.session().upload_state("step", HostTensor(std::int32_t{step - 1}));
      // From w = 0, so that the change has all its digits.
      const double change = exact.change(0.1, step);
      EXPECT_NEAR(descent.step(0.1), change, 1e-6 * std::abs(change)) << beta2 << ' ' << step;
      EXPECT_EQ(descent.session().download_state("step").item(), step);
    }
}

TEST(Adam, FollowsTheFormulaOverManySteps) {
  ExactAdam exact{.beta1 = 0.8, .beta2 = 0.97, .eps = 1e-6, .lr = 0.05};
  Descent descent(Adam{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.97, .eps = 1e-6});
  double w = 0;
  for (int step = 1; step <= 50; ++step) {
    const double gradient = std::sin(step) + 0.3;
    w += exact.change(gradient, step);
    ASSERT_NEAR(descent.step(gradient), w, 1e-5) << step;
  }
}

TEST(AdamW, DecayIsDecoupled) {
  // Without a gradient only the decay applies, whatever the moments.
  EXPECT_NEAR(Descent(AdamW{.lr = 0.1, .weight_decay = 0.5}).at(2).step(0), 2 * (1 - 0.1 * 0.5), 1e-6);
  EXPECT_NEAR(Descent(AdamW{.lr = 0.1, .weight_decay = 0.5}).at(2).step(3), 2 * (1 - 0.1 * 0.5) - 0.1, 1e-6);
  EXPECT_EQ(Descent(Adam{.lr = 0.1}).at(2).step(0), 2);
}

TEST(AdamW, DecaysByDescriptionOrByFilter) {
  const AdamW plain{.lr = 0.1, .weight_decay = 0.5};
  EXPECT_EQ(Descent(plain, {}, false).at(2).step(0), 2);
  AdamW all = plain, none = plain;
  all.decay = [](const std::string& name) { return name == "w"; };
  none.decay = [](const std::string& name) { return name != "w"; };
  EXPECT_NEAR(Descent(all, {}, false).at(2).step(0), 1.9, 1e-6);
  EXPECT_EQ(Descent(none, {}, true).at(2).step(0), 2);
}

TEST(Sgd, MomentumAndNesterovFollowTheirFormulas) {
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true}) {
      if (momentum == 0 && nesterov) continue;
      Descent descent(Sgd{.lr = 0.1, .momentum = momentum, .nesterov = nesterov, .weight_decay = 0.01});
      double w = 1, velocity = 0;
      descent.at(1);
      for (int step = 1; step <= 10; ++step) {
        const double g = std::cos(step) + 0.01 * w;
        velocity = momentum * velocity + g;
        w -= 0.1 * (momentum == 0 ? g : nesterov ? g + momentum * velocity : velocity);
        ASSERT_NEAR(descent.step(std::cos(step)), w, 1e-5) << momentum << nesterov << ' ' << step;
      }
    }
}

TEST(ClipNorm, ScalesDownToTheGlobalNormAndNeverUp) {
  const auto change = [](double clip, float a, float b) {
    Module module = compile(
        training_graph(
            {{"g", {2}}, {"h", {}}},
            [](const Inputs& in) { return sum(param_input("w", {2}) * in["g"]) + param_input("v", {}) * in["h"]; },
            Sgd{.lr = 1, .clip_norm = clip}),
        {.device = Device::reference()});
    module.step({{"g", HostTensor({2}, {a, b})}, {"h", HostTensor(12.0f)}});
    const HostTensor w = module.session().download_param("w");
    return std::vector<double>{-w.number(0), -w.number(1), -module.session().download_param("v").item()};
  };
  const auto expect = [](const std::vector<double>& computed, const std::vector<double>& wanted) {
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(computed[i], wanted[i], 1e-5) << i;
  };
  expect(change(0, 3, 4), {3, 4, 12});  // norm 13
  expect(change(6.5, 3, 4), {1.5, 2, 6});
  expect(change(20, 3, 4), {3, 4, 12});
}

// Schedules

std::vector<Schedule> schedules() {
  return {Schedule(0.02),
          warmup_cosine(3e-4, 100, 5000),
          warmup_cosine(1, 0, 50, 0.1),
          warmup_linear(0.5, 10, 40, 0.05),
          warmup_cosine(2, 7, 7),
          Schedule({{5, 1, 2, Schedule::Curve::linear},
                    {0, 9, 9, Schedule::Curve::linear},
                    {20, 2, 0.5, Schedule::Curve::cosine},
                    {10, 3, 3, Schedule::Curve::linear}})};
}

TEST(Schedules, InTheGraphEqualThoseOnTheHost) {
  for (const Schedule& schedule : schedules()) {
    double peak = 0;
    std::int64_t total = 20;
    for (const auto& piece : schedule.pieces()) {
      peak = std::max({peak, piece.from, piece.to});
      total += piece.steps;
    }
    Module module = compile(
        forward_graph({{"step", {}, DType::i32}}, [&](const Inputs& in) { return schedule.at(Operand(in["step"])); }),
        {.device = Device::reference()});
    for (std::int64_t step = 1; step <= total; step += total > 1000 ? 37 : 1)
      ASSERT_NEAR(module.run({{"step", HostTensor(static_cast<std::int32_t>(step))}}).get("output").item(),
                  schedule.at(step), 1e-6 * peak)
          << step;
  }
}

TEST(Schedules, HaveTheirShapes) {
  const Schedule cosine = warmup_cosine(1, 10, 30, 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(1), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1);
  EXPECT_DOUBLE_EQ(cosine.at(20), 0.6);
  EXPECT_DOUBLE_EQ(cosine.at(30), 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(1000), 0.2);
  EXPECT_DOUBLE_EQ(warmup_linear(1, 10, 30).at(25), 0.25);
  EXPECT_DOUBLE_EQ(Schedule(0.5).at(12345), 0.5);
}

TEST(Schedules, DriveTheOptimizerAndAreReported) {
  const Schedule schedule = warmup_linear(0.4, 4, 8);
  Module module = compile(training_graph(
                              {}, [](const Inputs&) { return sum(param_input("w", {})); }, Sgd{.lr = schedule}),
                          {.device = Device::reference()});
  double w = 0;
  for (int step = 1; step <= 10; ++step) {
    EXPECT_NEAR(module.step({}).get("lr").item(), schedule.at(step), 1e-7);
    w -= schedule.at(step);
    EXPECT_NEAR(module.session().download_param("w").item(), w, 1e-6);
  }
}

// A user's own

Optimizer lion(LearningRate lr, double weight_decay) {
  return {.lr = std::move(lr), .update = [weight_decay](ParamUpdate& p) -> Tensor {
            const Tensor m = p.state("lion_m");
            const Tensor blend = 0.9 * m + 0.1 * p.grad;
            const Tensor sign = where(blend > 0, 1, where(blend < 0, -1, zeros_like(blend)));
            p.set_state("lion_m", 0.99 * m + 0.01 * p.grad);
            return p.param * (1 - p.lr * (p.decay ? weight_decay : 0)) - p.lr * sign;
          }};
}

TEST(CustomOptimizer, LionFollowsItsFormula) {
  Descent descent(lion(0.1, 0.2));
  double w = 1, m = 0;
  descent.at(1);
  for (int step = 1; step <= 20; ++step) {
    const double gradient = std::cos(step), blend = 0.9 * m + 0.1 * gradient;
    m = 0.99 * m + 0.01 * gradient;
    w = w * (1 - 0.1 * 0.2) - (blend > 0 ? 0.1 : blend < 0 ? -0.1 : 0);
    ASSERT_NEAR(descent.step(gradient), w, 1e-5) << step;
  }
  EXPECT_NEAR(descent.session().download_state("lion_m/w").item(), m, 1e-6);
}

// The nearest orthogonal matrix, by five Newton-Schulz steps.
Tensor orthogonalized(const Tensor& g) {
  Tensor x = g / (sqrt(sum(square(g))) + 1e-7);
  for (int i = 0; i < 5; ++i) {
    const Tensor a = matmul(x, x, {.transpose_b = true});
    x = 3.4445 * x + matmul(-4.7750 * a + 2.0315 * matmul(a, a), x);
  }
  return x;
}

Optimizer muon(LearningRate lr) {
  return {.lr = std::move(lr), .update = [](ParamUpdate& p) -> Tensor {
            const Tensor m = p.state("muon_m");
            const Tensor next = 0.95 * m + p.grad;
            p.set_state("muon_m", next);
            const Tensor direction = 0.95 * next + p.grad;
            return p.param - p.lr * (p.param.rank() == 2 ? orthogonalized(direction) : direction);
          }};
}

TEST(CustomOptimizer, MuonStepsByOrthogonalMatrices) {
  Descent descent(muon(1), {3, 4});
  const HostTensor w = descent.step(HostTensor({3, 4}, {5, 1, 0, 2, -1, 0.5, 3, 0, 0.25, 0.5, 0, -2}));
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b) {
      double product = 0;
      for (std::size_t i = 0; i < 4; ++i) product += w.f32()[a * 4 + i] * w.f32()[b * 4 + i];
      EXPECT_NEAR(product, a == b ? 1 : 0, 0.5) << a << b;  // the iteration leaves singular values in 0.7 … 1.2
    }
}

TEST(CustomOptimizer, MayStartItsStateAnywhere) {
  const Optimizer custom{.lr = 1, .update = [](ParamUpdate& p) -> Tensor {
                           const Tensor scale = p.state("scale", Init::constant(8));
                           p.set_state("scale", scale / 2);
                           return p.param - scale * p.grad;
                         }};
  Descent descent(custom);
  EXPECT_EQ(descent.step(1), -8);
  EXPECT_EQ(descent.step(1), -12);
}

}  // namespace
}  // namespace jerboa
