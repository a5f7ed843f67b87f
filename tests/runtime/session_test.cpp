#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/reserved_state.h>
#include <jerboa/runtime/session.h>

#include "runtime/regression.h"
#include "support/expect_error.h"

namespace jerboa {
namespace {

using test::everything;
using test::expect_error;
using test::regression_batch;
using test::regression_forward;
using test::regression_session;
using test::regression_step;

using Names = std::vector<std::string>;

TEST(Session, KeepsParametersAndStatesByName) {
  const Session session = regression_session();
  EXPECT_EQ(session.param_names(), (Names{"b", "w"}));
  EXPECT_EQ(session.state_names(), (Names{"adam_m/b", "adam_m/w", "adam_v/b", "adam_v/w", "step"}));
  EXPECT_EQ(session.download_param("w").shape(), (Sizes{3}));
  EXPECT_EQ(session.download_state("step").item(), 0);
  EXPECT_EQ(session.device().name(), "reference");
  expect_error<UsageError>([&] { session.download_param("v"); }, "no parameter is named v; available: b, w");
  expect_error<UsageError>([&] { session.download_param("step"); }, "no parameter is named step");
  expect_error<UsageError>([&] { session.download_state("w"); },
                           "no state is named w; available: adam_m/b, adam_m/w, adam_v/b, adam_v/w, step");
}

TEST(Session, StepComputesTheLossAndItsGradientAndUpdates) {
  Session session = regression_session(3);
  const TensorMap batch = regression_batch();
  const HostTensor w = session.download_param("w");
  const auto x = batch.at("x").f32(), y = batch.at("y").f32();
  double loss = 0, dw[3] = {}, db = 0;
  for (std::size_t row = 0; row < 4; ++row) {
    double error = -y[row];
    for (std::size_t i = 0; i < 3; ++i) error += x[row * 3 + i] * w.f32()[i];
    loss += error * error / 4;
    for (std::size_t i = 0; i < 3; ++i) dw[i] += error * x[row * 3 + i] / 2;
    db += error / 2;
  }
  const Result result = session.step(batch);
  EXPECT_NEAR(result.loss(), loss, 1e-6);
  const TensorMap grads = session.download_param_grads();
  ASSERT_EQ(grads.size(), 2u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(grads.at("w").f32()[i], dw[i], 1e-5);
  EXPECT_NEAR(grads.at("b").item(), db, 1e-5);
  // Adam's first step is the rate against the gradient's sign.
  const HostTensor after = session.download_param("w");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(after.f32()[i], w.f32()[i] - (dw[i] > 0 ? 0.1 : -0.1), 1e-6);
  EXPECT_EQ(session.download_state("step").item(), 1);
}

TEST(Session, TheSameStepTwiceGivesTheSameBits) {
  const auto run = [](bool dropout) {
    Session session = regression_session(7, dropout);
    TensorMap results;
    for (int i = 0; i < 5; ++i)
      results.emplace(std::to_string(i), session.step(regression_batch(), {.all_captures = true}).get("prediction"));
    results.merge(everything(session));
    return results;
  };
  EXPECT_EQ(run(false), run(false));
  EXPECT_EQ(run(true), run(true));
}

// States with these names are derived by the session, so they must match.
TEST(Session, StatesNamedAsCopiesMustBeCopies) {
  Session session(Device::reference());
  session.add_entry("run", trace([] {
                      const Tensor copy = detail::reserved_state("f16/w", {1000}, DType::f16),
                                   w = param_input("w", {1});
                      output("y", cast(copy, DType::f32) * w);
                    }));
  // Every time: no run computes with what could not be filled. Only the first one fills w itself.
  for (int run = 0; run < 3; ++run)
    expect_error<UsageError>([&] { session.run("run", {}); },
                             "f16/w is f16[1000], which is not an f16 copy of w (f32[1]); give the state another name");
  Session empty(Device::reference());
  empty.add_entry("run", trace([] { output("y", cast(state_input("rng", {0}, DType::u32), DType::f32)); }));
  EXPECT_EQ(empty.run("run", {}).get("y").size(), 0);
}

TEST(Session, TakesExactlyTheBytesOfATensor) {
  const auto memory = Device::reference().backend().allocate(DType::f32, {3}, "w");
  expect_error<UsageError>([&] { memory->upload(std::vector<std::byte>(8)); }, "a tensor of 12 bytes was given 8");
}

TEST(Session, InitialValuesDependOnlyOnTheSeedAndTheName) {
  EXPECT_EQ(everything(regression_session(1)), everything(regression_session(1)));
  EXPECT_NE(regression_session(1).download_param("w"), regression_session(2).download_param("w"));
  Session other(Device::reference(), {.seed = 1});
  other.add_entry("forward", regression_forward());
  EXPECT_EQ(other.download_param("w"), regression_session(1).download_param("w"));
}

// Captures and results

TEST(SessionResult, GivesOutputsAndTheCapturesThatWereAskedFor) {
  Session session = regression_session();
  const Result plain = session.step(regression_batch());
  EXPECT_EQ(plain.names(), Names{"loss"});
  EXPECT_FALSE(plain.has("error"));
  const Result one = session.step(regression_batch(), {.captures = {"error"}});
  EXPECT_EQ(one.names(), (Names{"error", "loss"}));
  EXPECT_EQ(one.shape_of("error"), (Sizes{4}));
  EXPECT_EQ(one.get("error").shape(), (Sizes{4}));
  const Result all = session.step(regression_batch(), {.all_captures = true});
  EXPECT_EQ(all.names(), (Names{"error", "loss", "prediction"}));
  double squares = 0;
  const HostTensor errors = all.get("error");
  for (const float error : errors.f32()) squares += error * error / 4;
  EXPECT_NEAR(all.loss(), squares, 1e-6);
}

TEST(SessionResult, UnknownNamesAreErrorsThatListTheKnown) {
  Session session = regression_session();
  const Result result = session.step(regression_batch(), {.captures = {"error"}});
  expect_error<UsageError>([&] { result.get("prediction"); },
                           "the run has no output or capture prediction; available: error, loss");
  expect_error<UsageError>([&] { result.shape_of("x"); }, "available: error, loss");
  expect_error<UsageError>([&] { session.step(regression_batch(), {.captures = {"weights"}}); },
                           "entry step: no capture is named weights; available: prediction, error");
  expect_error<UsageError>([] { Result().loss(); }, "available: none");
}

TEST(SessionResult, StaysReadableAfterLaterStepsAndAfterTheSession) {
  std::optional<Session> session = regression_session();
  const Result first = session->step(regression_batch());
  const double loss = first.loss();
  session->step(regression_batch());
  session.reset();
  EXPECT_EQ(first.loss(), loss);
}

// Entries and inputs

TEST(SessionEntries, AreFoundByName) {
  Session session = regression_session();
  session.add_entry("forward", regression_forward());
  EXPECT_TRUE(session.has_entry("forward"));
  EXPECT_FALSE(session.has_entry("backward"));
  EXPECT_EQ(session.graph("forward").outputs.at(0).name, "output");
  EXPECT_GT(session.kernel_count("step"), session.kernel_count("forward"));
  expect_error<UsageError>([&] { session.run("backward", {}); },
                           "the session has no entry backward; available: forward, step");
  expect_error<UsageError>([&] { session.kernel_count("backward"); }, "no entry backward");
  expect_error<UsageError>([&] { session.add_entry("step", regression_step()); }, "already has an entry step");
}

TEST(SessionEntries, ThatDoNotFitLeaveTheSessionAsItWas) {
  Session session = regression_session();
  const auto names = session.param_names();
  const Graph other = trace([] { output("output", param_input("a", {2}) + sum(param_input("w", {4}))); });
  expect_error<UsageError>([&] { session.add_entry("other", other); },
                           "w is param f32[4] here, but param f32[3] in another entry of the session");
  EXPECT_EQ(session.param_names(), names);
  EXPECT_FALSE(session.has_entry("other"));
  const Graph symbolic = trace([] { output("output", state_input("cache", {Dim::symbol("T", 8)}) + 1); });
  expect_error<UsageError>([&] { session.add_entry("symbolic", symbolic); },
                           "cache is kept between runs, so its shape [T] must not be symbolic");
  Graph broken = regression_forward();
  broken.outputs.at(0).tensor = 1000;
  expect_error<GraphError>([&] { session.add_entry("broken", broken); }, "output output uses tensor 1000");
}

TEST(SessionInputs, MissingAndUnknownOnesAreListed) {
  Session session = regression_session();
  TensorMap batch = regression_batch();
  batch.erase("y");
  batch.emplace("z", HostTensor(1.0f));
  expect_error<UsageError>([&] { session.step(batch); }, "entry step: missing inputs: y; unknown inputs: z");
}

TEST(SessionInputs, OfAnotherTypeOrShapeAreRefused) {
  Session session = regression_session();
  const TensorMap before = everything(session);
  TensorMap batch = regression_batch();
  batch["y"] = HostTensor(DType::i32, {4});
  expect_error<UsageError>([&] { session.step(batch); }, "entry step: input y is i32[4] but the graph expects f32[4]");
  batch["y"] = HostTensor(DType::f32, {5});
  expect_error<UsageError>([&] { session.step(batch); }, "input y is f32[5] but the graph expects f32[4]");
  batch["y"] = HostTensor(DType::f32, {4, 1});
  expect_error<UsageError>([&] { session.step(batch); }, "input y is f32[4, 1] but the graph expects f32[4]");
  EXPECT_EQ(everything(session), before);
}

TEST(SessionInputs, BindTheSymbols) {
  Session session(Device::reference());
  const Dim t = Dim::symbol("T", 6);
  session.add_entry("run", trace([&] {
                      const Tensor a = tensor_input("a", {t}), b = tensor_input("b", {t, 2});
                      output("sum", sum(b * unsqueeze(a, {-1}), {1}));
                      output("twice", concat({a, a}));
                    }));
  for (const std::int64_t size : {1, 4, 6}) {
    HostTensor a(DType::f32, {size}), b(DType::f32, {size, 2});
    for (std::int64_t i = 0; i < size; ++i) a.set_number(i, static_cast<double>(i));
    for (std::int64_t i = 0; i < 2 * size; ++i) b.set_number(i, 1);
    const Result result = session.run("run", {{"a", a}, {"b", b}});
    EXPECT_EQ(result.shape_of("twice"), (Sizes{2 * size}));
    EXPECT_EQ(result.get("sum").number(size - 1), 2.0 * static_cast<double>(size - 1));
  }
  const auto run = [&](const Sizes& a, const Sizes& b) {
    return [&session, a, b] {
      session.run("run", {{"a", HostTensor(DType::f32, a)}, {"b", HostTensor(DType::f32, b)}});
    };
  };
  expect_error<UsageError>(run({3}, {4, 2}),
                           "input b is f32[4, 2] but the graph expects f32[T, 2], which is [3, 2] here");
  expect_error<UsageError>(run({7}, {7, 2}), "input a is f32[7] but the graph expects f32[T]: ");
  expect_error<UsageError>(run({0}, {0, 2}), "input a is f32[0] but the graph expects f32[T]: ");
}

TEST(SessionInputs, ASymbolThatNoInputBindsIsNamed) {
  Session session(Device::reference());
  session.add_entry(
      "run", trace([] { output("output", tensor_input("a", {Dim::symbol("B", 4) * Dim::symbol("T", 4)}) + 1); }));
  expect_error<UsageError>([&] { session.run("run", {{"a", HostTensor(DType::f32, {4})}}); }, "input a is f32[4]");
}

// Parameters

TEST(SessionParams, AreUploadedAllOrNone) {
  Session session = regression_session();
  const TensorMap before = session.download_params();
  TensorMap params = before;
  params.at("w") = HostTensor({3}, {1, 2, 3});
  session.upload_params(params);
  EXPECT_EQ(session.download_params(), params);

  const HostTensor w({3}, {7, 8, 9});
  expect_error<UsageError>(
      [&] {
        session.upload_params({{"w", w}, {"v", w}});
      },
      "upload_params: unknown: v; missing: b");
  expect_error<UsageError>(
      [&] {
        session.upload_params({{"w", w}, {"step", w}}, {.partial = true});
      },
      "unknown: step; missing: none");
  expect_error<UsageError>(
      [&] {
        session.upload_params({{"b", HostTensor(1.0f)}, {"w", HostTensor(DType::f32, {2})}});
      },
      "w is f32[3] but was given f32[2]");
  EXPECT_EQ(session.download_params(), params);

  session.upload_params({{"w", w}}, {.partial = true});
  EXPECT_EQ(session.download_param("w"), w);
  EXPECT_EQ(session.download_param("b"), params.at("b"));
}

TEST(SessionParams, ManyUnknownNamesAreCounted) {
  Session session = regression_session();
  TensorMap params;
  for (int i = 10; i < 30; ++i) params.emplace("p" + std::to_string(i), HostTensor(1.0f));
  expect_error<UsageError>([&] { session.upload_params(params, {.partial = true}); },
                           "p20, p21 and 8 more; missing: none");
}

TEST(SessionParams, StatesAreUploadedByName) {
  Session session = regression_session();
  session.upload_state("step", HostTensor(std::int32_t{41}));
  session.step(regression_batch());
  EXPECT_EQ(session.download_state("step").item(), 42);
  expect_error<UsageError>([&] { session.upload_state("step", HostTensor(1.0f)); },
                           "step is i32[] but was given f32[]");
}

TEST(SessionParams, ThatAreTiedAreOne) {
  Session session(Device::reference(), {.seed = 5});
  session.add_entry("step", trace([] {
                      const Tensor x = tensor_input("x", {2});
                      const Tensor a = param_input("tied", {2}, {.init = Init::normal(1), .tied_to = "table"});
                      const Tensor table = param_input("table", {2}, {.init = Init::normal(1)});
                      const Tensor loss = sum(x * a) + sum(3 * table);
                      append_optimizer(append_grad(loss), Sgd{.lr = 1});
                      output("loss", loss);
                      output("same", sum(abs(a - table)));
                    }));
  EXPECT_EQ(session.param_names(), Names{"table"});
  const HostTensor before = session.download_param("table");
  const Result result = session.step({{"x", HostTensor({2}, {1, 2})}});
  EXPECT_EQ(result.get("same").item(), 0);
  const HostTensor after = session.download_param("table");
  EXPECT_FLOAT_EQ(after.f32()[0], before.f32()[0] - 4);  // the gradient is x + 3
  EXPECT_FLOAT_EQ(after.f32()[1], before.f32()[1] - 5);
  EXPECT_EQ(session.download_param("tied"), after);
  session.reset();
  EXPECT_EQ(session.download_param("table"), before);
  expect_error<UsageError>([&] { session.upload_params({{"tied", before}, {"table", before}}); }, "unknown: tied");
}

TEST(SessionParams, CanOnlyBeTiedToTheirLike) {
  const auto tie = [](const std::string& to, Shape shape) {
    return [to, shape] {
      trace([&] {
        const Tensor table = param_input("table", {2});
        output("sum", sum(table) + sum(param_input("tied", shape, {.tied_to = to})));
      });
    };
  };
  expect_error<GraphError>(tie("nothing", {2}),
                           "tied is tied to nothing, but only parameters of one graph can be tied");
  expect_error<GraphError>(tie("table", {3}), "tied is f32[3] but is tied to table, which is f32[2]");
  expect_error<GraphError>(tie("tied", {2}), "tied is tied to tied, which is tied itself");
}

// Starting again

TEST(SessionReset, StartsParametersAndStatesAgain) {
  Session session = regression_session(3, true);
  const TensorMap before = everything(session);
  const double loss = session.step(regression_batch()).loss();
  session.step(regression_batch());
  session.reset();
  EXPECT_EQ(everything(session), before);
  EXPECT_EQ(session.step(regression_batch()).loss(), loss);
  session.reset(4);
  EXPECT_EQ(session.seed(), 4u);
  EXPECT_EQ(everything(session), everything(regression_session(4, true)));
}

TEST(SessionReset, OfTheOptimizerLeavesParameters) {
  Session session = regression_session();
  for (int i = 0; i < 3; ++i) session.step(regression_batch());
  const TensorMap params = session.download_params();
  session.reset_optimizer_state();
  EXPECT_EQ(session.download_params(), params);
  for (const std::string& name : session.state_names())
    EXPECT_EQ(session.download_state(name), regression_session().download_state(name)) << name;
}

// Siblings

TEST(SessionSibling, SharesParametersWithoutACopy) {
  Session session = regression_session();
  Session forward = session.sibling();
  forward.add_entry("forward", regression_forward());
  EXPECT_FALSE(session.has_entry("forward"));
  const auto predict = [&] { return forward.run("forward", {{"x", regression_batch().at("x")}}).get("output"); };
  const HostTensor before = predict();
  const Result step = session.step(regression_batch(), {.captures = {"prediction"}});
  EXPECT_EQ(before, step.get("prediction"));
  const HostTensor after = predict();
  EXPECT_NE(after, before);
  EXPECT_EQ(after, session.step(regression_batch(), {.captures = {"prediction"}}).get("prediction"));
  forward.upload_params({{"w", HostTensor({3}, {0, 0, 0})}, {"b", HostTensor(2.0f)}});
  EXPECT_EQ(session.download_param("b").item(), 2);
}

TEST(SessionSibling, OutlivesTheOther) {
  std::optional<Session> session = regression_session();
  Session sibling = session->sibling();
  session.reset();
  sibling.add_entry("step", regression_step());
  EXPECT_GT(sibling.step(regression_batch()).loss(), 0);
}

TEST(Devices, AreFoundByName) {
  EXPECT_EQ(Device::by_name("reference").name(), "reference");
  EXPECT_EQ(Device::by_name("reference64").name(), "reference64");
  EXPECT_EQ(Device::by_name("best").name(), Device::best().name());
  expect_error<UsageError>([] { Device::by_name("abacus"); }, "no device is named abacus; available: best");
}

}  // namespace
}  // namespace jerboa
