#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/float16.h>
#include <jerboa/base/random.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/io/safetensors.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// 16-bit parameters: moments, other states and kept gradients are f32, an update computes in f32 and rounds its result
// to the parameter's type once.
namespace jerboa {
namespace {

double rounded(double value, DType dtype) {
  const auto single = static_cast<float>(value);
  return dtype == DType::bf16 ? bf16_to_f32(f32_to_bf16(single)) : f16_to_f32(f32_to_f16(single));
}

constexpr std::int64_t size = 64;

HostTensor some_values(DType dtype, std::uint64_t seed, double width) {
  SplitMix random(seed);
  HostTensor values(dtype, {size});
  for (std::int64_t i = 0; i < size; ++i) values.set_number(i, width * (2 * random.uniform() - 1));
  return values;
}

// The loss sum(w * g), so that the gradient of w is g, in w's type.
Module descent(DType dtype, const Optimizer& optimizer, const Device& device) {
  const Loss loss = [&](const Inputs& in) {
    const Tensor w = param_input("w", {size}, {.dtype = dtype});
    return cast(sum(w * in["g"]), DType::f32);
  };
  return compile(training_graph({{"g", {size}, dtype}}, loss, optimizer), {.device = device});
}

TEST(SixteenBitParameters, AreUpdatedInF32AndRoundedOnce) {
  for (const Device& device : {Device::reference(), Device::cpu(1)})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      Module module = descent(dtype, AdamW{.lr = 0.01, .weight_decay = 0.1}, device);
      HostTensor w = some_values(dtype, 3, 2);
      module.session().upload_params({{"w", w}});
      std::vector<double> m(size), v(size);
      for (int step = 1; step <= 5; ++step) {
        const HostTensor g = some_values(dtype, static_cast<std::uint64_t>(10 + step), 0.01);
        module.step({{"g", g}});
        const HostTensor next = module.session().download_param("w");
        ASSERT_EQ(next.dtype(), dtype);
        for (std::int64_t i = 0; i < size; ++i) {
          auto &m_i = m[static_cast<std::size_t>(i)], &v_i = v[static_cast<std::size_t>(i)];
          m_i = 0.9 * m_i + 0.1 * g.number(i);
          v_i = 0.999 * v_i + 0.001 * g.number(i) * g.number(i);
          const double change = m_i / (1 - std::pow(0.9, step)) / (std::sqrt(v_i / (1 - std::pow(0.999, step))) + 1e-8);
          const double exact = w.number(i) * (1 - 0.01 * 0.1) - 0.01 * change;
          ASSERT_EQ(next.number(i), rounded(exact, dtype)) << device.name() << ' ' << name(dtype) << ' ' << i;
        }
        w = next;
      }
      // A 16-bit type could not represent either of them as accurately.
      const HostTensor kept_m = module.session().download_state("adam_m/w");
      const HostTensor kept_v = module.session().download_state("adam_v/w");
      EXPECT_EQ(kept_m.dtype(), DType::f32);
      EXPECT_EQ(kept_v.dtype(), DType::f32);
      for (std::int64_t i = 0; i < size; ++i) {
        EXPECT_NEAR(kept_m.number(i), m[static_cast<std::size_t>(i)], 1e-9);
        EXPECT_NEAR(kept_v.number(i), v[static_cast<std::size_t>(i)], 1e-12);
      }
      EXPECT_EQ(module.session().download_param_grads().at("w").dtype(), DType::f32);
    }
}

TEST(SixteenBitParameters, AccumulateTheirGradientsInF32) {
  const DType dtype = DType::f16;
  Graph sums = accumulation_graph(
      {{"g", {size}, dtype}},
      [&](const Inputs& in) { return cast(sum(param_input("w", {size}, {.dtype = dtype}) * in["g"]), DType::f32); }, 1);
  Session session =
      create_session({{"grad", sums}, {"apply", apply_graph(sums, Sgd{.lr = 1})}}, {.device = Device::cpu(1)});
  // 1, and then fractions of it, each too small to be added in f16.
  HostTensor one(dtype, {size}), small(dtype, {size});
  for (std::int64_t i = 0; i < size; ++i) one.set_number(i, 1), small.set_number(i, 0x1p-12);
  session.run("grad", {{"g", one}});
  for (int i = 0; i < 64; ++i) session.run("grad", {{"g", small}});
  EXPECT_EQ(session.download_param_grads().at("w").number(0), 1 + 64 * 0x1p-12);
  session.run("apply", {});
  EXPECT_EQ(session.download_param("w").number(0), -(1 + 64 * 0x1p-12));
  EXPECT_EQ(session.download_param_grads().at("w").number(0), 0);
}

TEST(SixteenBitParameters, ClipByTheNormOfF32) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    Module module = descent(dtype, Sgd{.lr = 1, .clip_norm = 0.5}, Device::cpu(1));
    HostTensor g(dtype, {size});
    for (std::int64_t i = 0; i < size; ++i) g.set_number(i, 64);  // their squares overflow when summed in f16
    module.step({{"g", g}});
    EXPECT_NEAR(module.session().download_param("w").number(0), -0.5 / 8, 1e-3);
  }
}

struct Words {
  DType dtype = DType::bf16;
  nn::Embedding table{16, 8, {.init = Init::normal(0.5), .dtype = dtype}};
  nn::LayerNorm norm{8, {.dtype = dtype}};
  nn::RMSNorm scale{8, {.eps = 1e-5, .dtype = dtype}};
  nn::Linear out{8, 16, {.dtype = dtype}};
  JERBOA_FIELDS(table, norm, scale, out)
  Tensor operator()(Tensor ids) const { return out(scale(norm(cast(table(ids), DType::f32)))); }
};

Batch words() {
  HostTensor ids(DType::i32, {4, 8}), targets = ids;
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    ids.set_number(i, static_cast<double>(i % 16));
    targets.set_number(i, static_cast<double>((i * 5 + 1) % 16));
  }
  return {{"ids", ids}, {"targets", targets}};
}

TEST(SixteenBitParameters, TrainOnTheCpuAndKeepTheirTypeInCheckpoints) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const test::TempFolder folder;
    const TrainerOptions options{.optimizer = AdamW{.lr = 0.02}, .device = Device::cpu(1)};
    Trainer trainer(Words{.dtype = dtype}, next_token_loss, options);
    const double first = trainer.step(words()).loss();
    double last = first;
    for (int i = 0; i < 60; ++i) last = trainer.step(words()).loss();
    EXPECT_LT(last, first / 4) << name(dtype);
    for (const auto& [param, values] : trainer.session().download_params()) EXPECT_EQ(values.dtype(), dtype) << param;
    for (const std::string& state : trainer.session().state_names())
      EXPECT_EQ(trainer.session().download_state(state).dtype(), state == "step" ? DType::i32 : DType::f32) << state;

    trainer.save(folder / "run");
    const SafeTensors file = SafeTensors::open(folder / "run");
    EXPECT_EQ(file.view("table.weight").type, dtype == DType::bf16 ? StoredType::BF16 : StoredType::F16);
    EXPECT_EQ(file.view("jerboa.state/adam_m/table.weight").type, StoredType::F32);
    Trainer resumed(Words{.dtype = dtype}, next_token_loss, options);
    resumed.load(folder / "run");
    EXPECT_EQ(resumed.step(words()).loss(), trainer.step(words()).loss());
    EXPECT_EQ(resumed.session().download_params(), trainer.session().download_params());

    Trainer wide(Words{.dtype = DType::f32}, next_token_loss, options);
    test::expect_error<FileError>([&] { wide.load(folder / "run"); }, "but the session's is f32");
  }
}

TEST(SixteenBitParameters, AreCastToTheTypeOfAModulesInput) {
  nn::Linear linear(3, 2, {.dtype = DType::f16});
  nn::Conv1d conv1d(3, 2, 3, {.dtype = DType::bf16});
  nn::Conv2d conv2d(3, 2, 3, {.dtype = DType::bf16});
  nn::Embedding table(5, 3, {.dtype = DType::bf16});
  for (auto* weight :
       {&linear.weight, &*linear.bias, &conv1d.weight, &*conv1d.bias, &conv2d.weight, &*conv2d.bias, &table.weight})
    weight->path = "p" + std::to_string(reinterpret_cast<std::uintptr_t>(weight));
  trace([&] {
    EXPECT_EQ(linear(tensor_input("wide", {4, 3})).dtype(), DType::f32);
    EXPECT_EQ(linear(tensor_input("half", {4, 3}, DType::f16)).dtype(), DType::f16);
    EXPECT_EQ(conv1d(tensor_input("line", {1, 3, 8})).dtype(), DType::f32);
    EXPECT_EQ(conv2d(tensor_input("image", {1, 3, 8, 8}, DType::f16)).dtype(), DType::f16);
    EXPECT_EQ(table(tensor_input("ids", {4}, DType::i32)).dtype(), DType::bf16);
    EXPECT_EQ(table.logits(tensor_input("state", {4, 3})).dtype(), DType::f32);
  });
  test::expect_error<UsageError>([] { nn::Linear(2, 2, {.dtype = DType::i32}); },
                                 "nn::Linear(2, 2): parameters are f32, f16 or bf16, not i32");
}

}  // namespace
}  // namespace jerboa
