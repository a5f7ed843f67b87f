#include <gtest/gtest.h>

#include <jerboa/jerboa.h>

#include "support/expect_error.h"

// Wrong use must fail with a message that names the thing, the user's line and, where there is one, the remedy.
namespace jerboa {
namespace {

using test::expect_error;
using test::message_of;

std::string here(int line) { return "misuse_test.cpp:" + std::to_string(line); }

// Expects an error whose message ends with, or at least contains, the line that `action` recorded.
template <class Expected, class Action>
void expect_error_at(Action&& action, const int& line, std::string_view part) {
  const std::string message = message_of<Expected>(action);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(message.find(here(line)), std::string::npos) << message << "\nwithout " << here(line);
}

TEST(Misuse, AnOpOutsideATrace) {
  Tensor kept;
  const Graph graph = trace([&] {
    kept = tensor_input("x", {2});
    output("y", kept + 1);
  });
  int line = 0;
  expect_error_at<GraphError>(
      [&] {
        line = __LINE__ + 1;
        exp(kept);
      },
      line, "exp: ops work only inside trace()");
  expect_error_at<GraphError>(
      [&] {
        line = __LINE__ + 1;
        kept + 1;
      },
      line, "add: ops work only inside");
  expect_error_at<GraphError>(
      [&] {
        line = __LINE__ + 1;
        tensor_input("x", {2});
      },
      line, "tensor_input: ops work only inside");
  expect_error<GraphError>([&] { kept.shape(); }, "shape: ops work only inside");
  nn::Linear linear(2, 2);
  assign_paths(linear);
  expect_error<GraphError>([&] { linear(kept); }, "ops work only inside");
}

TEST(Misuse, ATensorOfAnotherGraph) {
  Tensor stranger;
  const Graph other = trace([&] {
    stranger = tensor_input("x", {2});
    output("y", stranger);
  });
  int line = 0;
  trace([&] {
    const Tensor mine = param_input("w", {2});
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          mine* stranger;
        },
        line, "mul: an operand belongs to another graph");
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          output("y", stranger);
        },
        line, "output y: an operand belongs to another graph");
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          capture(stranger, "c");
        },
        line, "capture c: an operand belongs to another graph");
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          update(mine, stranger);
        },
        line, "update: an operand belongs to another graph");
    expect_error<GraphError>([&] { stranger.shape(); }, "belongs to another graph");
    expect_error<GraphError>([&] { grad(sum(mine), {stranger}); }, "belongs to another graph");
    output("mine", mine);
  });
}

TEST(Misuse, ATensorOfAFailedTrace) {
  Graph graph = trace([] { output("y", param_input("w", {2})); });
  Tensor lost;
  EXPECT_THROW(trace_into(graph,
                          [&] {
                            lost = exp(zeros({2}));
                            throw UsageError("the body gives up");
                          }),
               UsageError);
  EXPECT_EQ(graph.nodes.size(), 1u);
  trace_into(graph, [&] {
    expect_error<GraphError>([&] { neg(lost); }, "neg: an operand is not in the graph: its trace failed");
    expect_error<GraphError>([&] { lost.shape(); }, "not in the graph");
  });
}

TEST(Misuse, AnEmptyTensor) {
  trace([] {
    const Tensor none;
    int line = 0;
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          output("y", none);
        },
        line, "output y: an operand is empty");
    expect_error<GraphError>([&] { exp(none); }, "exp: the operand x is missing");
    expect_error<GraphError>([&] { none.shape(); }, "shape: the tensor is empty");
    output("z", scalar(0));
  });
}

TEST(Misuse, NamesThatAreTaken) {
  int line = 0;
  trace([&] {
    const Tensor x = tensor_input("x", {2});
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          tensor_input("x", {3});
        },
        line, "tensor_input: the name x is taken");
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          param_input("x", {3});
        },
        line, "param_input: the name x is taken");
    output("y", x);
    expect_error_at<GraphError>(
        [&] {
          line = __LINE__ + 1;
          output("y", x);
        },
        line, "output: the name y is taken");
  });
  expect_error<GraphError>(
      [] {
        forward_graph({{"x", {2}}, {"x", {2}}}, [](const Inputs& in) { return in["x"]; });
      },
      "the name x is taken");
}

TEST(Misuse, AnUnknownInput) {
  expect_error<UsageError>(
      [] {
        forward_graph({{"ids", {2}}, {"mask", {2}}}, [](const Inputs& in) { return in["id"]; });
      },
      "no input is named id; available: ids, mask");
}

struct Forgetful {
  static constexpr int line = __LINE__ + 1;
  nn::Linear listed{2, 3}, forgotten{3, 1};
  JERBOA_FIELDS(listed)
  static constexpr int use = __LINE__ + 1;
  Tensor operator()(Tensor x) const { return forgotten(listed(x)); }
};

TEST(Misuse, AModuleLeftOutOfItsFields) {
  int line = 0;
  const auto make = [&] {
    line = __LINE__ + 1;
    return Forgetful{};
  };
  Trainer trainer(make(), [](const Forgetful& model, const Inputs& in) { return mean(square(model(in["x"]))); });
  const std::string message = message_of<GraphError>([&] { trainer.step({{"x", HostTensor(DType::f32, {4, 2})}}); });
  EXPECT_NE(message.find("nn::Linear(3, 1) made at "), std::string::npos) << message;
  EXPECT_NE(message.find("has no name: list it in JERBOA_FIELDS"), std::string::npos) << message;
  EXPECT_NE(message.find("(" + here(Forgetful::use) + ")"), std::string::npos) << message;
  // Compilers differ in the line of a default member initialiser: its own, or that of the object being constructed.
  EXPECT_TRUE(message.find("made at " + here(Forgetful::line)) != std::string::npos ||
              message.find("made at " + here(line)) != std::string::npos)
      << message;
}

TEST(Misuse, NonScalarLoss) {
  const auto train = [](auto loss) { return [loss] { compile_module(nn::Linear(2, 3), loss, {{"x", {4, 2}}}); }; };
  int line = 0;
  expect_error_at<GraphError>(train([&](const nn::Linear& model, const Inputs& in) {
                                line = __LINE__ + 1;
                                return square(model(in["x"]));
                              }),
                              line, "the loss must be a float scalar, not f32[4, 3]");
  expect_error<GraphError>(
      train([](const nn::Linear& model, const Inputs& in) { return cast(sum(model(in["x"])), DType::i32); }),
      "the loss must be a float scalar, not i32[]");
  expect_error<GraphError>(train([](const nn::Linear&, const Inputs&) { return Tensor(); }), "the loss is empty");
}

TEST(Misuse, AnOpWithoutAGradient) {
  int line = 0;
  expect_error_at<GraphError>(
      [&] {
        trace([&] {
          const Tensor w = param_input("w", {1, 1, 4, 4});
          line = __LINE__ + 1;
          const Tensor spread = max_pool2d_grad(w, zeros({1, 1, 2, 2}), {.size = {4, 4}});
          append_grad(sum(spread));
        });
      },
      line, "max_pool2d_grad: cannot be differentiated");
}

struct Net {
  nn::Linear first{4, 8}, second{16, 2};
  int* line;
  JERBOA_FIELDS(first, second)
  Tensor operator()(Tensor x) const {
    *line = __LINE__ + 1;
    return second(first(x));
  }
};

TEST(Misuse, ShapesThatDoNotFitTellTheUsersLine) {
  int line = 0;
  Net net{.line = &line};
  expect_error_at<ShapeError>(
      [&] {
        compile_forward(net, [](const Net& self, const Inputs& in) { return self(in["x"]); }, {{"x", {3, 4}}});
      },
      line, "matmul: ");
}

// The exact error that README.md shows.
TEST(Misuse, AnErrorReadsAsOneLine) {
  int line = 0;
  const std::string message = message_of<ShapeError>([&] {
    trace([&] {
      line = __LINE__ + 1;
      matmul(zeros({8, 128, 256}), zeros({128, 512}));
    });
  });
  EXPECT_EQ(message, "matmul: [8, 128, 256] x [128, 512]: inner sizes 256 and 128 differ (" + here(line) + ")");
}

TEST(Misuse, OptionsThatMakeNoSense) {
  const auto loss = [](const nn::Linear& model, const Inputs& in) { return mean(model(in["x"])); };
  expect_error<UsageError>([&] { Trainer(nn::Linear(2, 2), loss, {.accumulate = 0}); },
                           "accumulate must be at least 1, not 0");
  Trainer trainer(nn::Linear(2, 2), loss, {.optimizer = Optimizer{}});
  expect_error<UsageError>(
      [&] {
        trainer.step({{"x", HostTensor(DType::f32, {1, 2})}});
      },
      "the optimizer has no update rule");
  expect_error<FileError>([&] { trainer.load("nowhere"); }, "nowhere");
  expect_error<UsageError>([] { nn::Linear(-1, 2); }, "nn::Linear(-1, 2): a size is negative (misuse_test.cpp:");
  expect_error<UsageError>([] { nn::Conv2d(4, 4, 3, {.groups = 0}); }, "nn::Conv2d(4, 4, 3)");
  expect_error<UsageError>([] { warmup_cosine(1, 20, 10); }, "a schedule of 10 steps cannot begin with 20 of warm-up");
  expect_error<UsageError>([] { Schedule(std::vector<Schedule::Piece>{}); }, "at least one piece");
  trace([] {
    expect_error<UsageError>([] { nn::Dropout{1.0}(zeros({2})); }, "a rate of 1 is not in [0, 1)");
    ParamUpdate p;
    p.name = "w";
    p.param = param_input("w", {2});
    expect_error<UsageError>([&] { p.set_state("m", p.param); }, "no state m for w; call state() first");
    output("y", p.param);
  });
}

TEST(Misuse, AnOptimizerWhoseResultDoesNotFit) {
  const Optimizer wrong{.update = [](ParamUpdate& p) -> Tensor { return sum(p.grad); }};
  expect_error<ShapeError>(
      [&] {
        compile_module(
            nn::Linear(2, 3), [](const nn::Linear& model, const Inputs& in) { return mean(model(in["x"])); },
            {{"x", {4, 2}}}, wrong);
      },
      "is f32[3, 2] but the new value is f32[]");
}

}  // namespace
}  // namespace jerboa
