#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/frontend/nn.h>

#include "support/expect_error.h"

// The level below the Trainer.
namespace jerboa {
namespace {

const auto loss = [](const nn::Linear& model, const Inputs& in) { return mean(square(model(in["x"]))); };
const auto forward = [](const nn::Linear& model, const Inputs& in) { return model(in["x"]); };

const CompileOptions on_reference{.device = Device::reference(), .seed = 3};

TEST(Compile, ModuleReportsItsProperties) {
  Module module = compile_module(nn::Linear(2, 3), loss, {{"x", {4, 2}}}, Sgd{.lr = 0.001}, on_reference);
  EXPECT_TRUE(module.ir().training);
  EXPECT_EQ(module.output_shape("loss"), Shape{});
  EXPECT_GT(module.kernel_count(), 0);
  EXPECT_EQ(module.session().device().name(), "reference");
  test::expect_error<UsageError>([&] { module.output_shape(); },
                                 "the module has no output output; available: loss, lr");
  HostTensor x({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const double first = module.step({{"x", x}}).loss();
  EXPECT_LT(module.step({{"x", x}}).loss(), first);
}

TEST(Compile, AForwardPassHasItsOwnParametersOrSharesThem) {
  Module trained = compile_module(nn::Linear(2, 3), loss, {{"x", {4, 2}}}, Sgd{.lr = 0.1}, on_reference);
  Module sibling = compile_forward(nn::Linear(2, 3), forward, {{"x", {1, 2}}}, trained.session());
  Module alone = compile_forward(nn::Linear(2, 3), forward, {{"x", {1, 2}}}, on_reference);
  EXPECT_FALSE(sibling.ir().training);
  EXPECT_EQ(sibling.output_shape(), (Shape{1, 3}));
  const TensorMap one{{"x", HostTensor({1, 2}, {1, -1})}};
  const HostTensor start = alone.run(one).get("output");
  EXPECT_EQ(sibling.run(one).get("output"), start);  // the same seed
  trained.step({{"x", HostTensor({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}});
  EXPECT_NE(sibling.run(one).get("output"), start);
  EXPECT_EQ(alone.run(one).get("output"), start);
  EXPECT_EQ(sibling.session().download_params(), trained.session().download_params());
}

TEST(Compile, ASymbolIsBoundByTheInputs) {
  Module module = compile_forward(nn::Linear(2, 3), forward, {{"x", {Dim::symbol("N", 8), 2}}}, on_reference);
  EXPECT_EQ(to_string(module.output_shape()), "[N, 3]");
  for (const std::int64_t count : {1, 5, 8})
    EXPECT_EQ(module.run({{"x", HostTensor(DType::f32, {count, 2})}}).shape_of("output"), (Sizes{count, 3}));
}

TEST(Compile, AGraphIsWrittenByHandAndTravelsAsJson) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {2, 2});
    const Tensor w = param_input("w", {2}, {.init = Init::ones()});
    const Tensor total = sum(capture(x * w, "product"));
    append_adam(append_grad(total), {.lr = 0.5});
    output("total", total);
  });
  Module original = compile(graph, on_reference), travelled = compile(from_json(to_json(graph)), on_reference);
  const TensorMap inputs{{"x", HostTensor({2, 2}, {1, 2, 3, 4})}};
  for (int i = 0; i < 2; ++i) {
    const Result a = original.step(inputs, {.captures = {"product"}}),
                 b = travelled.step(inputs, {.captures = {"product"}});
    EXPECT_NEAR(a.get("total").item(), i == 0 ? 10 : 5, 1e-5);
    EXPECT_EQ(a.get("product"), b.get("product"));
  }
  EXPECT_EQ(original.session().download_params(), travelled.session().download_params());
}

TEST(Compile, ASessionHasAnEntryPerGraph) {
  const Graph count = trace([] {
    const Tensor n = state_input("n", {}, DType::i32);
    update(n, n + 1);
    output("before", n);
  });
  const Graph read = trace([] { output("n", state_input("n", {}, DType::i32) * 10); });
  Session session = create_session({{"count", count}, {"read", read}}, on_reference);
  EXPECT_EQ(session.run("count", {}).get("before").item(), 0);
  EXPECT_EQ(session.run("count", {}).get("before").item(), 1);
  EXPECT_EQ(session.run("read", {}).get("n").item(), 20);
  EXPECT_EQ(session.seed(), 3u);
}

TEST(Compile, AParameterThatDoesNotReachTheLossGetsAZeroGradient) {
  Module module = compile(training_graph(
                              {},
                              [](const Inputs&) {
                                output("unused", param_input("idle", {3}, {.init = Init::ones()}) * 2);
                                return sum(param_input("w", {2}, {.init = Init::ones()}));
                              },
                              Sgd{.lr = 1}),
                          on_reference);
  module.step({});
  const TensorMap grads = module.session().download_param_grads();
  EXPECT_EQ(grads.at("idle"), HostTensor({3}, {0, 0, 0}));
  EXPECT_EQ(grads.at("w"), HostTensor({2}, {1, 1}));
  EXPECT_EQ(module.session().download_param("idle"), HostTensor({3}, {1, 1, 1}));
}

TEST(Compile, AFrozenParameterStays) {
  Module module = compile(
      training_graph(
          {},
          [](const Inputs&) {
            return sum(param_input("w", {2}) * param_input("frozen", {2}, {.init = Init::ones(), .trainable = false}));
          },
          Sgd{.lr = 1}),
      on_reference);
  module.step({});
  EXPECT_EQ(module.session().download_param("frozen"), HostTensor({2}, {1, 1}));
  EXPECT_EQ(module.session().download_param("w"), HostTensor({2}, {-1, -1}));
  EXPECT_FALSE(module.session().download_param_grads().contains("frozen"));
}

}  // namespace
}  // namespace jerboa
