#include <gtest/gtest.h>
#include <set>

#include <jerboa/base/error.h>
#include <jerboa/transform/decompose.h>
#include <jerboa/transform/grad.h>

#include "ops/case.h"
#include "ops/gradient_check.h"
#include "support/expect_error.h"
#include "transform/grad_rules.h"
#include "verify/compare.h"

// Properties of every op, generated from the op table and the sample cases.
namespace jerboa::test {
namespace {

std::vector<Op> ops_where(bool (*condition)(const OpInfo&)) {
  std::vector<Op> list;
  for (const OpInfo& row : op_table())
    if (row.lowering != Lowering::Leaf && condition(row)) list.push_back(row.op);
  return list;
}

bool every(const OpInfo&) { return true; }
bool differentiable(const OpInfo& row) { return row.gradient == Gradient::Rule || row.gradient == Gradient::Decompose; }
bool by_rule(const OpInfo& row) { return row.gradient == Gradient::Rule; }
bool flat(const OpInfo& row) { return row.gradient == Gradient::Zero; }
bool refused(const OpInfo& row) { return row.gradient == Gradient::None; }
bool evaluated_and_decomposed(const OpInfo& row) {
  return row.gradient == Gradient::Decompose && row.lowering != Lowering::Decompose;
}

std::string op_name(const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); }

/// Calls body(case) for each sample case of the op under test, with a trace that says which one fails.
template <class Body>
void for_each_case(Op op, Body body) {
  const auto& cases = cases_of(op);
  ASSERT_FALSE(cases.empty());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(op, i, cases[i]));
    body(cases[i]);
  }
}

void expect_round_trip(const Graph& graph) {
  const std::string json = to_json(graph);
  EXPECT_EQ(to_json(from_json(json)), json);
}

void expect_close(const Value& computed, const Value& wanted, const Tolerance& tolerance) {
  EXPECT_EQ(computed.dtype, wanted.dtype);
  EXPECT_EQ(computed.shape, wanted.shape);
  EXPECT_EQ(difference(computed.data, wanted.data, tolerance), std::nullopt);
}

class EveryOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, ::testing::ValuesIn(ops_where(every)), op_name);

TEST_P(EveryOp, RunsForward) {
  for_each_case(GetParam(), [&](const Case& sample) {
    std::map<std::string, Value> inputs;
    std::vector<TensorId> keep;
    const Graph graph = trace([&] {
      for (const Tensor& out : build(GetParam(), sample, inputs).outputs) keep.push_back(out.id());
    });
    expect_round_trip(graph);
    const auto exact = run(graph, keep, inputs, ReferencePrecision::f64),
               rounded = run(graph, keep, inputs, ReferencePrecision::f32);
    for (std::size_t i = 0; i < keep.size(); ++i) {
      EXPECT_EQ(exact[i].dtype, graph.type(keep[i]).dtype);
      EXPECT_EQ(exact[i].shape, evaluate(graph.shape(keep[i]), symbol_values));
      expect_close(rounded[i], exact[i], {1e-4, 1e-5, 1e-4});
    }
  });
}

class DifferentiableOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, DifferentiableOp, ::testing::ValuesIn(ops_where(differentiable)), op_name);

TEST_P(DifferentiableOp, GradientAgreesWithDifferences) {
  int checked = 0;
  for_each_case(GetParam(), [&](const Case& sample) {
    const auto it = first_order(GetParam(), sample);
    if (!it) return;
    ++checked;
    expect_round_trip(it->graph);
    for (const Mismatch& mismatch : check_gradient(*it)) ADD_FAILURE() << mismatch.message;
  });
  EXPECT_GT(checked, 0);
}

// Only an op that the table marks as not differentiable may prevent it.
TEST_P(DifferentiableOp, GradientOfGradientAgreesWithDifferences) {
  for_each_case(GetParam(), [&](const Case& sample) {
    try {
      const auto it = second_order(GetParam(), sample);
      if (!it) return;
      expect_round_trip(it->graph);
      for (const Mismatch& mismatch : check_gradient(*it)) ADD_FAILURE() << mismatch.message;
    } catch (const GraphError& error) {
      const std::string message = error.what();
      const auto op = op_from_name(message.substr(0, message.find(':')));
      ASSERT_TRUE(op && info(*op).gradient == Gradient::None) << message;
      EXPECT_NE(message.find("cannot be differentiated (model.cpp:41)"), std::string::npos) << message;
    }
  });
}

class RuleOp : public ::testing::TestWithParam<Op> {
 protected:
  ~RuleOp() override { detail::mutated_gradient.reset(); }
};
INSTANTIATE_TEST_SUITE_P(Ops, RuleOp, ::testing::ValuesIn(ops_where(by_rule)), op_name);

// Makes the rule wrong by a hundredth: the cases must notice, for each operand that has a gradient.
TEST_P(RuleOp, AWrongRuleIsNoticed) {
  std::set<std::string> operands, noticed;
  for_each_case(GetParam(), [&](const Case& sample) {
    detail::mutated_gradient = GetParam();
    const auto it = first_order(GetParam(), sample);
    if (!it) return;
    for (const TensorId id : it->wrt) operands.insert(it->graph.tensor(id).name);
    for (const Mismatch& mismatch : check_gradient(*it)) noticed.insert(mismatch.input);
  });
  EXPECT_EQ(noticed, operands);
}

class FlatOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, FlatOp, ::testing::ValuesIn(ops_where(flat)), op_name);

TEST_P(FlatOp, PassesNothingBack) {
  for_each_case(GetParam(), [&](const Case& sample) {
    const auto it = first_order(GetParam(), sample);
    if (!it) return;
    for (const Value& value : run(it->graph, it->grads, it->inputs))
      for (const double element : value.data) EXPECT_EQ(element, 0);
  });
}

class RefusedOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, RefusedOp, ::testing::ValuesIn(ops_where(refused)), op_name);

TEST_P(RefusedOp, SaysThatItCannotBeDifferentiated) {
  for_each_case(GetParam(), [&](const Case& sample) {
    if (!is_float(sample.operands.front().dtype)) return;  // a result of words, which nobody differentiates
    expect_error<GraphError>([&] { first_order(GetParam(), sample); },
                             std::string(name(GetParam())) + ": cannot be differentiated (model.cpp:41)");
  });
}

class TwofoldOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, TwofoldOp, ::testing::ValuesIn(ops_where(evaluated_and_decomposed)), op_name);

// For an op with both an evaluation and a decomposition, the two must agree.
TEST_P(TwofoldOp, DecompositionAgreesWithEvaluation) {
  for_each_case(GetParam(), [&](const Case& sample) {
    std::map<std::string, Value> inputs;
    std::vector<TensorId> direct, decomposed;
    const Graph graph = trace([&] {
      const Instance instance = build(GetParam(), sample, inputs);
      for (const Tensor& out : instance.outputs) direct.push_back(out.id());
      const Node node = current_graph("test").producer(instance.outputs[0].id());
      for (const Tensor& out : decomposition(node, instance.operands)) decomposed.push_back(out.id());
    });
    ASSERT_EQ(direct.size(), decomposed.size());
    const auto a = run(graph, direct, inputs), b = run(graph, decomposed, inputs);
    for (std::size_t i = 0; i < a.size(); ++i) expect_close(a[i], b[i], {1e-9, 1e-9, 1e-9});
  });
}

}  // namespace
}  // namespace jerboa::test
