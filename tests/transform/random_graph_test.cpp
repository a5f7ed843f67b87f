#include "support/random_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/transform/cleanup.h>
#include <jerboa/transform/decompose.h>
#include <jerboa/transform/grad.h>

#include "verify/compare.h"

// Graphs of random ops: their gradients against finite differences, and passes that must not change what they compute.
namespace jerboa::test {
namespace {

std::vector<Value> outputs_of(const Graph& graph, const std::map<std::string, Value>& inputs) {
  std::vector<TensorId> keep;
  for (const NamedTensor& output : graph.outputs) keep.push_back(output.tensor);
  return run(graph, keep, inputs);
}

class RandomGraph : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraph, ::testing::Range(0u, 60u));

TEST_P(RandomGraph, GradientAgreesWithDifferences) {
  const Differentiated it = random_graph(GetParam(), 12);
  for (const Mismatch& mismatch : check_gradient(it)) ADD_FAILURE() << mismatch.message << "\n" << print(it.graph);
}

TEST_P(RandomGraph, GradientOfGradientAgreesWithDifferences) {
  Differentiated it;
  it.graph = trace([&] {
    Grower grower(GetParam() + 1000, it.inputs);
    grower.grow(5);
    const auto& leaves = grower.leaves();
    const auto first = grad(grower.loss(), leaves);
    Tensor loss = scalar(0);
    for (std::size_t i = 0; i < first.size(); ++i)
      loss = loss + sum(first[i] * weight_input(fmt::format("v{}", i), first[i], it.inputs));
    it.loss = loss.id();
    it.wrt = ids(leaves);
    it.grads = ids(grad(loss, leaves));
  });
  for (const Mismatch& mismatch : check_gradient(it)) ADD_FAILURE() << mismatch.message << "\n" << print(it.graph);
}

TEST_P(RandomGraph, SurvivesJsonAndPasses) {
  const Differentiated it = random_graph(GetParam(), 20);
  const std::string json = to_json(it.graph);
  EXPECT_EQ(to_json(from_json(json)), json);
  const auto expected = outputs_of(it.graph, it.inputs);
  const auto expect_same = [&](const char* pass, const Graph& graph) {
    SCOPED_TRACE(pass);
    verify(graph);
    ASSERT_EQ(graph.outputs.size(), it.graph.outputs.size());
    const auto values = outputs_of(graph, it.inputs);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(graph.outputs[i].name, it.graph.outputs[i].name);
      EXPECT_EQ(difference(values[i].data, expected[i].data, {1e-12, 1e-12, 1e-12}), std::nullopt);
    }
  };
  expect_same("JSON", from_json(json));
  expect_same("decompose", decompose(it.graph));
  expect_same("merge_common_nodes", merge_common_nodes(it.graph));
  expect_same("remove_dead_nodes", remove_dead_nodes(it.graph));
  expect_same("all", remove_dead_nodes(merge_common_nodes(decompose(it.graph))));
}

}  // namespace
}  // namespace jerboa::test
