#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/random.h>
#include <jerboa/frontend/data.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa::trainer_test {
namespace {

using test::expect_error;

struct Net {
  int width = 6;
  nn::Linear up{3, width}, down{width, 1};
  JERBOA_FIELDS(up, down)
  Tensor operator()(Tensor x) const { return squeeze(down(tanh(up(x))), {-1}); }
};

constexpr auto squared_error = [](const auto& model, const Inputs& in) {
  return mean(square(model(in["x"]) - in["y"]));
};

// Rows first … first + rows of an endless table.
Batch rows(std::int64_t first, std::int64_t count) {
  HostTensor x(DType::f32, {count, 3}), y(DType::f32, {count});
  for (std::int64_t row = 0; row < count; ++row) {
    SplitMix random(static_cast<std::uint64_t>(first + row) * 977 + 5);
    random.next();
    double total = 0;
    for (std::int64_t i = 0; i < 3; ++i) {
      const double value = 2 * random.uniform() - 1;
      x.set_number(row * 3 + i, value);
      total += static_cast<double>(i + 1) * value;
    }
    y.set_number(row, std::sin(total));
  }
  return {{"x", x}, {"y", y}};
}

double largest_difference(const TensorMap& a, const TensorMap& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [name, tensor] : a)
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      largest = std::max(largest, std::abs(tensor.number(i) - b.at(name).number(i)));
  return largest;
}

TEST(Trainer, LearnsAndCountsItsSteps) {
  Trainer trainer(Net{.width = 8}, squared_error, {.optimizer = Adam{.lr = 0.02}, .device = Device::reference()});
  EXPECT_EQ(trainer.steps(), 0);
  double first = 0, last = 0;
  for (int i = 0; i < 100; ++i) {
    const StepResult result = trainer.step(rows(0, 16));
    EXPECT_EQ(result.step, i + 1);
    (i == 0 ? first : last) = result.loss();
  }
  EXPECT_LT(last, first / 10);
  EXPECT_EQ(trainer.steps(), 100);
  EXPECT_EQ(trainer.session().param_names(),
            (std::vector<std::string>{"down.bias", "down.weight", "up.bias", "up.weight"}));
}

TEST(Trainer, AccumulatedGradientsEqualThoseOfOneBatch) {
  for (const Optimizer& optimizer :
       std::vector<Optimizer>{Sgd{.lr = 0.1, .momentum = 0.9}, AdamW{.lr = 0.01, .clip_norm = 0.5}}) {
    Trainer whole(Net{}, squared_error, {.optimizer = optimizer, .device = Device::reference()});
    Trainer halves(Net{}, squared_error, {.optimizer = optimizer, .device = Device::reference(), .accumulate = 2});
    for (std::int64_t i = 0; i < 4; ++i) {
      const double loss = whole.step(rows(8 * i, 8)).loss();
      const StepResult first = halves.step(rows(8 * i, 4));
      EXPECT_EQ(first.step, i);
      const TensorMap sums = halves.session().download_param_grads();
      const StepResult second = halves.step(rows(8 * i + 4, 4));
      EXPECT_EQ(second.step, i + 1);
      EXPECT_NEAR((first.loss() + second.loss()) / 2, loss, 1e-6);
      EXPECT_GT(largest_difference(sums, whole.session().download_param_grads()), 0);
      EXPECT_LT(largest_difference(halves.session().download_params(), whole.session().download_params()), 1e-5);
    }
    EXPECT_EQ(halves.session().download_state("step").item(), 4);
  }
}

TEST(Trainer, BatchesOfOtherShapesCompileAStepOfTheirOwn) {
  Trainer changing(Net{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = Device::reference()});
  EXPECT_EQ(changing.step(rows(0, 4)).step, 1);
  EXPECT_EQ(changing.step(rows(4, 7)).step, 2);
  EXPECT_EQ(changing.step(rows(11, 4)).step, 3);
  EXPECT_EQ(changing.session().download_state("step").item(), 3);
  // The same by a trainer that has seen each shape before.
  Trainer prepared(Net{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = Device::reference()});
  prepared.prepare(rows(0, 7));
  prepared.prepare(rows(0, 4));
  EXPECT_EQ(prepared.steps(), 0);
  prepared.step(rows(0, 4));
  prepared.step(rows(4, 7));
  prepared.step(rows(11, 4));
  EXPECT_EQ(prepared.session().download_params(), changing.session().download_params());
}

TEST(Trainer, BatchesOfOtherTypesAndInputsAreOtherSteps) {
  Trainer trainer(Net{}, squared_error, {.device = Device::reference()});
  trainer.step(rows(0, 4));
  Batch batch = rows(0, 4);
  batch["y"] = HostTensor(DType::i32, {4});
  expect_error<ShapeError>([&] { trainer.step(batch); }, "sub: ");
  batch.erase("y");
  expect_error<UsageError>([&] { trainer.step(batch); }, "no input is named y; available: x");
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_EQ(trainer.step(rows(0, 4)).step, 2);
}

// Learning rates

TEST(TrainerRate, ComesFromTheHostAtEachStep) {
  Trainer trainer(Net{}, squared_error, {.optimizer = Sgd{.lr = HostRate{}}, .device = Device::reference()});
  Batch batch = rows(0, 4);
  trainer.prepare(batch);
  const TensorMap start = trainer.session().download_params();
  expect_error<UsageError>([&] { trainer.step(batch); },
                           "the batch has no lr, the learning rate that the optimizer expects from the host");
  batch["lr"] = HostTensor(0.0f);
  EXPECT_EQ(trainer.step(batch).get("lr").item(), 0);
  EXPECT_EQ(trainer.session().download_params(), start);
  batch["lr"] = HostTensor(0.5f);
  EXPECT_EQ(trainer.step(batch).get("lr").item(), 0.5);
  const TensorMap grads = trainer.session().download_param_grads(), after = trainer.session().download_params();
  for (const auto& [name, grad] : grads)
    for (std::int64_t i = 0; i < grad.size(); ++i)
      EXPECT_NEAR(after.at(name).number(i), start.at(name).number(i) - 0.5 * grad.number(i), 1e-6);
  trainer.prepare(batch);  // the rate in it is not an input of the model
}

TEST(TrainerRate, FromTheHostWorksWithAccumulation) {
  Trainer trainer(Net{}, squared_error,
                  {.optimizer = Sgd{.lr = HostRate{"rate"}}, .device = Device::reference(), .accumulate = 2});
  Trainer fixed(Net{}, squared_error, {.optimizer = Sgd{.lr = 0.25}, .device = Device::reference(), .accumulate = 2});
  Batch with_rate = rows(0, 4);
  with_rate["rate"] = HostTensor(0.25f);
  EXPECT_EQ(trainer.step(with_rate).step, 0);
  EXPECT_EQ(trainer.step(with_rate).step, 1);
  fixed.step(rows(0, 4));
  fixed.step(rows(0, 4));
  EXPECT_EQ(trainer.session().download_params(), fixed.session().download_params());
}

// Checkpoints

struct Dropping {
  nn::Linear up{3, 16}, down{16, 1};
  nn::Dropout dropout{0.3};
  JERBOA_FIELDS(up, down, dropout)
  Tensor operator()(Tensor x) const { return squeeze(down(dropout(tanh(up(x)))), {-1}); }
};

TEST(TrainerCheckpoint, ContinuesBitForBit) {
  const test::TempFolder folder;
  const TrainerOptions options{
      .optimizer = AdamW{.lr = warmup_cosine(0.05, 3, 20)}, .device = Device::reference(), .seed = 9};
  Trainer whole(Dropping{}, squared_error, options);
  for (std::int64_t i = 0; i < 3; ++i) whole.step(rows(4 * i, 4));
  whole.save(folder / "run");

  Trainer resumed(Dropping{}, squared_error, options);
  resumed.prepare(rows(0, 4));
  resumed.load(folder / "run");
  EXPECT_EQ(resumed.steps(), 3);
  for (std::int64_t i = 3; i < 7; ++i) {
    const StepResult a = whole.step(rows(4 * i, 4)), b = resumed.step(rows(4 * i, 4));
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.loss(), b.loss());
  }
  EXPECT_EQ(resumed.session().download_params(), whole.session().download_params());
}

TEST(TrainerCheckpoint, LoadAndResetDropAPartOfAnUpdate) {
  const test::TempFolder folder;
  const TrainerOptions options{.optimizer = Sgd{.lr = 0.1}, .device = Device::reference(), .accumulate = 2};
  Trainer trainer(Net{}, squared_error, options), clean(Net{}, squared_error, options);
  trainer.prepare(rows(0, 4));
  trainer.save(folder / "start");
  for (std::int64_t i = 0; i < 2; ++i) clean.step(rows(4 * i, 4));

  trainer.step(rows(100, 4));
  trainer.load(folder / "start");
  for (std::int64_t i = 0; i < 2; ++i) trainer.step(rows(4 * i, 4));
  EXPECT_EQ(trainer.session().download_params(), clean.session().download_params());

  trainer.step(rows(100, 4));
  trainer.reset();
  EXPECT_EQ(trainer.steps(), 0);
  for (std::int64_t i = 0; i < 2; ++i) trainer.step(rows(4 * i, 4));
  EXPECT_EQ(trainer.session().download_params(), clean.session().download_params());
}

// Forward passes

TEST(TrainerForward, SeesTheParametersThatAreTrained) {
  Trainer trainer(Dropping{}, squared_error, {.optimizer = Sgd{.lr = 0.1}, .device = Device::reference()});
  ForwardPass forward = trainer.compile_forward("x");
  const TensorMap inputs{{"x", rows(0, 5).at("x")}};
  const HostTensor before = forward(inputs).get("output");
  EXPECT_EQ(forward(inputs).get("output"), before);  // evaluation has no dropout
  EXPECT_EQ(before.shape(), (Sizes{5}));
  trainer.step(rows(0, 4));
  const HostTensor after = forward(inputs).get("output");
  EXPECT_NE(after, before);
  EXPECT_EQ(forward({{"x", rows(0, 2).at("x")}}).get("output").number(1), after.number(1));  // another shape
  ForwardPass doubled =
      trainer.compile_forward([](const Dropping& model, const Inputs& in) { return 2 * model(in["x"]); });
  EXPECT_EQ(doubled(inputs).get("output").number(0), 2 * after.number(0));
}

struct Attending {
  nn::Linear qkv{4, 12}, out{4, 1};
  JERBOA_FIELDS(qkv, out)
  Tensor operator()(Tensor x) const {
    const auto [q, k, v] = split<3>(qkv(x));
    return out(attention(q, k, v, {.heads = 2, .causal = true, .capture = "attention"}));
  }
};

TEST(TrainerCaptures, AreReadFromAStep) {
  Trainer trainer(Attending{}, [](const Attending& model, const Inputs& in) { return mean(square(model(in["x"]))); },
                  {.device = Device::reference()});
  HostTensor x(DType::f32, {2, 3, 4});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set_number(i, std::sin(static_cast<double>(i)));
  const StepResult result = trainer.step({{"x", x}}, {.captures = {"attention"}});
  EXPECT_EQ(result.shape_of("attention"), (Sizes{2, 2, 3, 3}));
  const HostTensor weights = result.get("attention");
  for (std::int64_t row = 0; row < 12; ++row) {
    double total = 0;
    for (std::int64_t s = 0; s < 3; ++s) {
      total += weights.number(row * 3 + s);
      EXPECT_TRUE(s <= row % 3 || weights.number(row * 3 + s) == 0);
    }
    EXPECT_NEAR(total, 1, 1e-6);
  }
}

TEST(TrainerModels, AreCopiedSoThatTrainersAreIndependent) {
  const Net net;
  Trainer a(net, squared_error, {.device = Device::reference()}),
      b(net, squared_error, {.device = Device::reference()});
  a.step(rows(0, 4));
  a.step(rows(0, 4));
  EXPECT_EQ(b.step(rows(0, 4)).step, 1);
  EXPECT_TRUE(net.up.weight.path.empty());
  EXPECT_EQ(a.model().up.weight.path, "up.weight");
}

struct Bigram {
  nn::Embedding table{128, 128, Init::zeros()};
  JERBOA_FIELDS(table)
  Tensor operator()(Tensor ids) const { return table(ids); }
};

// The losses that come with the library, each on data of its kind.
TEST(Losses, TrainATextModel) {
  Trainer trainer(Bigram{}, next_token_loss, {.optimizer = Sgd{.lr = 20}, .device = Device::reference()});
  const TextData text = TextData::from_text("ababababababab", {.batch = 2, .length = 6});
  double first = 0, last = 0;
  for (auto& batch : text.batches(20)) {
    const StepResult result = trainer.step(batch);
    last = result.loss();
    if (result.step == 1) first = last;
  }
  EXPECT_NEAR(first, std::log(128), 1e-5);
  EXPECT_LT(last, 0.1);
}

struct Cnn {
  nn::Conv2d conv{1, 4, 3, {.padding = 1}};
  nn::Linear out{4, 2};
  JERBOA_FIELDS(conv, out)
  Tensor operator()(Tensor images) const { return out(mean(relu(conv(images)), {2, 3})); }
};

TEST(Losses, TrainAnImageModel) {
  // Stripes along one axis or the other.
  HostTensor images(DType::f32, {8, 1, 6, 6}), labels(DType::i32, {8});
  for (std::int64_t i = 0; i < 8; ++i) {
    labels.set_number(i, static_cast<double>(i % 2));
    for (std::int64_t p = 0; p < 36; ++p)
      images.set_number(i * 36 + p, static_cast<double>((i % 2 == 0 ? p / 6 : p % 6) % 2));
  }
  Trainer trainer(Cnn{}, classification_loss,
                  {.optimizer = Adam{.lr = 0.05}, .device = Device::reference(), .seed = 1});
  double last = 1;
  for (int i = 0; i < 60; ++i) last = trainer.step({{"images", images}, {"labels", labels}}).loss();
  EXPECT_LT(last, 0.1);
}

}  // namespace
}  // namespace jerboa::trainer_test
