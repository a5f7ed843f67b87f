#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>

#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>
#include <jerboa/transform/grad.h>
#include <jerboa/transform/optimizer.h>

#include "support/expect_error.h"
#include "support/run_checks.h"
#include "support/temp_folder.h"

namespace jerboa {
namespace {

using test::expect_error;

TEST(FiniteCheck, NamesTheFirstTensorItsOpAndTheLine) { test::expect_finite_check(Device::cpu()); }
TEST(FiniteCheck, WorksOnTheReference) { test::expect_finite_check(Device::reference()); }
TEST(FiniteCheck, NamesFunctionsOutsideTheirDomain) {
  test::expect_finite_check_of_functions(Device::cpu());
  test::expect_finite_check_of_functions(Device::reference());
}
TEST(IndexCheck, NamesIndicesThatTheGraphComputes) { test::expect_index_check(Device::cpu()); }

TEST(FiniteCheck, NamesConstants) {
  Session session(Device::cpu(), {.check_finite = true});
  session.add_entry("run", trace([] {
                      output("y", tensor_input("x", {2}) * constant(HostTensor({2}, {1, INFINITY})));
                    }));
  expect_error<NotFiniteError>(
      [&] {
        session.run("run", {{"x", HostTensor({2}, {1, 2})}});
      },
      "holds NaN or infinity before the run: it is a constant");
}

TEST(FiniteCheck, NamesInputsAndParameters) {
  Session session(Device::cpu(), {.check_finite = true});
  session.add_entry("run", trace([] { output("y", tensor_input("x", {2}) * param_input("w", {2})); }));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_error<NotFiniteError>(
      [&] {
        session.run("run", {{"x", HostTensor({2}, {1, nan})}});
      },
      "x holds NaN or infinity before the run: it is an input");
  session.upload_params({{"w", HostTensor({2}, {1, INFINITY})}});
  expect_error<NotFiniteError>(
      [&] {
        session.run("run", {{"x", HostTensor({2}, {1, 2})}});
      },
      "w holds NaN or infinity before the run: it is a parameter");
  session.upload_params({{"w", HostTensor({2}, {1, 3})}});
  EXPECT_EQ(session.run("run", {{"x", HostTensor({2}, {1, 2})}}).get("y"), HostTensor({2}, {1, 6}));
}

TEST(Checks, FollowTheEnvironment) {
  const auto graph = trace([] { output("y", log(tensor_input("x", {1}))); });
  const TensorMap inputs{{"x", HostTensor({1}, {-1})}};
  ::setenv("JERBOA_CHECK", "finite", 1);
  Session checked(Device::cpu());
  checked.add_entry("run", graph);
  expect_error<NotFiniteError>([&] { checked.run("run", inputs); }, "log produced NaN or infinity");
  ::setenv("JERBOA_CHECK", "indices,finit", 1);
  expect_error<UsageError>([] { const Session session(Device::cpu()); }, "JERBOA_CHECK names 'finit'");
  ::unsetenv("JERBOA_CHECK");
  Session plain(Device::cpu());
  plain.add_entry("run", graph);
  EXPECT_TRUE(std::isnan(plain.run("run", inputs).get("y").item()));
}

TEST(Checks, AreNotPartOfSavedProgramsAndRefusedForLoadedOnes) {
  const test::TempFolder folder;
  const auto path = folder / "run.jerboa";
  Session checked(Device::cpu(), {.check_finite = true});
  checked.add_entry("run", trace([] { output("y", log(tensor_input("x", {1}))); }));
  checked.save_program(path);
  Session loaded = Session::load_program(path, Device::cpu());
  EXPECT_EQ(loaded.entries().at(0).outputs.size(), 1u);
  EXPECT_TRUE(std::isnan(loaded.run("run", {{"x", HostTensor({1}, {-1})}}).get("y").item()));
  expect_error<UsageError>([&] { Session::load_program(path, Device::cpu(), {.check_finite = true}); },
                           "run.jerboa is already compiled, so its tensors cannot be checked");
}

TEST(Checks, ArePartOfProgramsThatAreCompiledWithThem) {
  const test::TempFolder folder;
  test::expect_finite_check_of_a_program(Device::cpu(), Target::cpu(), folder / "run.jerboa");
  // Saved again, they are still there.
  Session::load_program(folder / "run.jerboa", Device::cpu()).save_program(folder / "again.jerboa");
  Session again = Session::load_program(folder / "again.jerboa", Device::cpu());
  expect_error<NotFiniteError>(
      [&] {
        again.run("run", {{"x", HostTensor({3}, {0, 1, 0.5f})}});
      },
      "grown is not finite");
  expect_error<UsageError>(
      [&] { Session::load_program(folder / "run.jerboa", Device::cpu(), {.check_indices = true}); },
      "run.jerboa is already compiled");
}

TEST(Checks, OfIndicesArePartOfProgramsToo) {
  const test::TempFolder folder;
  const Graph graph = trace([] {
    const Tensor ids = cast(tensor_input("x", {2}) * 2, DType::i32).named("doubled");
    output("rows", embedding(param_input("table", {5, 3}), ids));
  });
  save_program(folder / "run.jerboa", compile_program({{"run", graph}}, Target::cpu(), {.indices = true}));
  Session session = Session::load_program(folder / "run.jerboa", Device::cpu());
  session.run("run", {{"x", HostTensor({2}, {0, 2})}});
  expect_error<UsageError>(
      [&] {
        session.run("run", {{"x", HostTensor({2}, {0, 3})}});
      },
      "doubled holds 6, which is out of range for embedding: indices go from 0 to 4 (checks_test.cpp:");
}

TEST(Checks, OfRatesArePartOfPrograms) {
  const test::TempFolder folder;
  const auto train = [](const Optimizer& optimizer) {
    return trace([&] { append_optimizer(append_grad(sum(square(param_input("w", {2}) - 1))), optimizer); });
  };
  const Optimizer climber{.lr = HostRate{"rate"}, .update = [](ParamUpdate& p) { return p.param + p.lr * p.grad; }};
  Session traced(Device::cpu());
  traced.add_entry("step", train(climber));
  traced.save_program(folder / "custom.jerboa");
  save_program(folder / "sgd.jerboa", compile_program({{"step", train(Sgd{.lr = HostRate{"rate"}})}}, Target::cpu()));
  for (const bool is_custom : {false, true}) {
    Session session = Session::load_program(folder / (is_custom ? "custom.jerboa" : "sgd.jerboa"), Device::cpu());
    const auto step = [&](float rate) { session.run("step", {{"rate", HostTensor(rate)}}); };
    expect_error<UsageError>([&] { step(std::numeric_limits<float>::quiet_NaN()); },
                             std::string("entry step: input rate: a learning rate must be ") +
                                 (is_custom ? "finite, not nan" : "0 or more and finite, not nan"));
    if (is_custom)
      EXPECT_NO_THROW(step(-1));
    else
      expect_error<UsageError>([&] { step(-1); }, "not -1");
  }
}

// Indices in inputs are always checked, on every device.
class InputIndices : public testing::Test {
 protected:
  void expect_refused(const Graph& graph, const TensorMap& inputs, const std::string& part) {
    for (Session& session : sessions(graph)) expect_error<UsageError>([&] { session.run("run", inputs); }, part);
  }
  void expect_taken(const Graph& graph, const TensorMap& inputs) {
    for (Session& session : sessions(graph)) EXPECT_NO_THROW(session.run("run", inputs));
  }
  // From the graph, and from a program file.
  std::vector<Session> sessions(const Graph& graph) {
    std::vector<Session> all;
    all.emplace_back(Device::cpu()).add_entry("run", graph);
    all.front().save_program(folder_ / "run.jerboa");
    all.push_back(Session::load_program(folder_ / "run.jerboa", Device::cpu()));
    return all;
  }
  static HostTensor integers(Sizes shape, const std::vector<std::int32_t>& values) {
    return {std::move(shape), std::span<const std::int32_t>(values)};
  }

 private:
  test::TempFolder folder_;
};

TEST_F(InputIndices, OfAnEmbeddingMustBeInRange) {
  const Graph graph = trace([] {
    const Tensor ids = tensor_input("ids", {2, 2}, DType::i32);
    output("rows", embedding(param_input("table", {5, 3}), reshape(ids, {4})));
  });
  expect_taken(graph, {{"ids", integers({2, 2}, {0, 4, 2, 3})}});
  expect_refused(graph, {{"ids", integers({2, 2}, {0, 5, 2, 3})}},
                 "input ids holds 5, which is out of range for embedding: indices go from 0 to 4");
  expect_refused(graph, {{"ids", integers({2, 2}, {0, 1, -1, 3})}}, "input ids holds -1");
}

TEST_F(InputIndices, OfACrossEntropyMayBeNegativeForNone) {
  const Graph graph = trace([] {
    output("loss", mean(cross_entropy(tensor_input("logits", {2, 3}), tensor_input("labels", {2}, DType::i32))));
  });
  const HostTensor logits({2, 3}, {1, 2, 3, 4, 5, 6});
  expect_taken(graph, {{"logits", logits}, {"labels", integers({2}, {2, -100})}});
  expect_refused(graph, {{"logits", logits}, {"labels", integers({2}, {77, 0})}},
                 "input labels holds 77, which is out of range for cross_entropy: indices go from 0 to 2");
}

// Only the part of an input that is used as indices is checked, whatever moves are in between.
TEST_F(InputIndices, AreThoseThatReachTheOp) {
  const Graph graph = trace([] {
    const Tensor tokens = tensor_input("tokens", {2, 3}, DType::i32);
    const Tensor first = slice(swap_axes(tokens, 0, 1), 0, 0, 2);  // columns 0 and 1
    output("rows", embedding(param_input("table", {5, 3}), first));
  });
  expect_taken(graph, {{"tokens", integers({2, 3}, {0, 1, 99, 2, 3, -7})}});
  expect_refused(graph, {{"tokens", integers({2, 3}, {0, 1, 2, 2, 8, 2})}}, "input tokens holds 8");
}

TEST_F(InputIndices, AreFollowedThroughConcatenationsAndPadding) {
  const Graph graph = trace([] {
    const Tensor first = tensor_input("first", {2, 1}, DType::i32), rest = tensor_input("rest", {2, 3}, DType::i32);
    const Tensor joined = pad(concat({first, slice(rest, 1, 0, 2)}, 1), {0, 0}, {0, 1});
    output("rows", embedding(param_input("table", {5, 3}), reshape(joined, {8})));
  });
  expect_taken(graph, {{"first", integers({2, 1}, {4, 0})}, {"rest", integers({2, 3}, {1, 2, 99, 3, 4, -7})}});
  expect_refused(graph, {{"first", integers({2, 1}, {4, 6})}, {"rest", integers({2, 3}, {1, 2, 3, 3, 4, 0})}},
                 "input first holds 6");
  expect_refused(graph, {{"first", integers({2, 1}, {4, 1})}, {"rest", integers({2, 3}, {1, 2, 3, 5, 4, 0})}},
                 "input rest holds 5");
}

// If only a part of a concatenation is used, it is unknown whose indices those are, so none is checked.
TEST_F(InputIndices, OfUnusedPartsAreNotChecked) {
  const Graph graph = trace([] {
    const Tensor a = tensor_input("a", {2}, DType::i32), b = tensor_input("b", {2}, DType::i32);
    output("rows", embedding(param_input("table", {5, 3}), slice(concat({a, b}, 0), 0, 0, 2)));
  });
  expect_taken(graph, {{"a", integers({2}, {4, 0})}, {"b", integers({2}, {99, -1})}});
}

// A reshape that is not a view of the input comes between two slices.
TEST_F(InputIndices, AreFollowedThroughCopies) {
  const Graph graph = trace([] {
    const Tensor tokens = tensor_input("tokens", {2, 3}, DType::u32);
    const Tensor line = reshape(slice(tokens, 1, 0, 2), {4});  // elements 0, 1, 3 and 4
    output("rows", embedding(param_input("table", {5, 3}), unsqueeze(slice(line, 0, 1, 3), {0})));
  });
  const auto tokens = [](std::vector<double> values) {
    HostTensor tensor(DType::u32, {2, 3});
    for (std::size_t i = 0; i < values.size(); ++i) tensor.set_number(static_cast<std::int64_t>(i), values[i]);
    return tensor;
  };
  expect_taken(graph, {{"tokens", tokens({99, 1, 99, 4, 99, 99})}});
  expect_refused(graph, {{"tokens", tokens({0, 1, 0, 5, 0, 0})}}, "input tokens holds 5");
  expect_refused(graph, {{"tokens", tokens({0, 7, 0, 0, 0, 0})}}, "input tokens holds 7");
}

// Scatters drop updates with indices out of range, so any index is allowed; the same goes for their gradient.
TEST_F(InputIndices, OfScattersMayBeAnything) {
  const Graph graph = trace([] {
    const Tensor indices = tensor_input("indices", {3}, DType::i32);
    const Tensor x = param_input("x", {2}), updates = param_input("updates", {3});
    const Tensor put = scatter(x, indices, updates, 0), sums = scatter_add(x, indices, updates, 0);
    const Tensor rows = embedding_grad(indices, reshape(updates, {3, 1}), 2);
    for (const ParamGrad& pair : append_grad(sum(put * sums) + sum(rows * rows)))
      output("d_" + pair.param.name(), pair.grad);
  });
  expect_taken(graph, {{"indices", integers({3}, {-1, 1, 700})}});
}

TEST_F(InputIndices, FollowTheSymbolsOfARun) {
  const Graph graph = trace([] {
    const Dim length = Dim::symbol("T", 8);
    const Tensor x = tensor_input("x", {length}), places = tensor_input("places", {2}, DType::i32);
    output("taken", take_along_axis(x, places, 0));
  });
  const HostTensor x({3}, {1, 2, 3});
  expect_taken(graph, {{"x", x}, {"places", integers({2}, {2, 0})}});
  expect_refused(graph, {{"x", x}, {"places", integers({2}, {3, 0})}}, "indices go from 0 to 2");
}

}  // namespace
}  // namespace jerboa
