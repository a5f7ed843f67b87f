#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/transform/grad.h>

#include "ops/case.h"
#include "ops/cases/large.h"
#include "ops/gradient_check.h"
#include "support/random_graph.h"
#include "verify/compare.h"

// The CPU engine against the reference in f64, over the sample cases of every op: forward and gradient, fused and not,
// planned and not, with memory that holds rubbish before a run, on several threads, and with a guard over each
// dispatch's memory.
namespace jerboa::test {
namespace {

using Inputs = std::map<std::string, Value>;

TensorMap outputs_on(const CpuOptions& options, const Graph& graph, const Inputs& inputs) {
  Session session(Device(make_cpu_backend(options)));
  session.add_entry("run", graph);
  TensorMap host;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::input && tensor.name != "sizes")
      host.emplace(tensor.name, to_host(inputs.at(tensor.name)));
  // Symbols get their values from the inputs' shapes; one that no input has in its shape needs one that does.
  if (graph.find("sizes") != no_tensor)
    host["sizes"] = HostTensor(DType::f32, evaluate(graph.shape(graph.find("sizes")), symbol_values));
  const Result result = session.run("run", host);
  TensorMap outputs;
  for (const std::string& name : result.names()) outputs.emplace(name, result.get(name));
  return outputs;
}

CpuOptions with(bool fused, bool planned, int threads, float sentinel) {
  CpuOptions options;
  options.threads = threads;
  options.target.fuse = fused;
  options.target.plan = planned;
  options.sentinel = sentinel;
  return options;
}

CpuOptions guarded(bool fused, bool planned, int threads) {
  CpuOptions options = with(fused, planned, threads, 0);
  options.guard = true;
  return options;
}

// A case of an op with everything that it computes as outputs, gradients included.
struct Sample {
  Graph graph;
  Inputs inputs;
};

Sample sample_of(Op op, const Case& sample) {
  const Gradient column = info(op).gradient;
  if (column == Gradient::Rule || column == Gradient::Decompose)
    if (const auto differentiated = first_order(op, sample)) {
      Sample result{differentiated->graph, differentiated->inputs};
      trace_into(result.graph, [&] {
        const std::uint64_t identity = result.graph.identity();
        for (std::size_t i = 0; i < differentiated->grads.size(); ++i)
          output("grad" + std::to_string(i), Tensor(identity, differentiated->grads[i]));
        output("loss", Tensor(identity, differentiated->loss));
      });
      return result;
    }
  Sample result;
  result.graph = trace([&] {
    const Instance instance = build(op, sample, result.inputs);
    for (std::size_t i = 0; i < instance.outputs.size(); ++i) output("out" + std::to_string(i), instance.outputs[i]);
  });
  return result;
}

Sample with_sizes(Sample sample) {
  if (!sample.graph.symbols().empty()) trace_into(sample.graph, [] { tensor_input("sizes", {T, B}); });
  sample.inputs["sizes"] = Value{DType::f32, evaluate({T, B}, symbol_values), std::vector<double>(10, 0.0)};
  return sample;
}

TensorMap forward_and_gradient(const Sample& sample, const CpuOptions& options) {
  return outputs_on(options, sample.graph, sample.inputs);
}

void expect_same_bits(const TensorMap& a, const TensorMap& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor == b.at(name)) << name << " differs: " << what;
}

void expect_reference(const Sample& sample, const TensorMap& computed, const Tolerance& tolerance, const char* what) {
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  const auto wanted = run(sample.graph, keep, sample.inputs);
  for (std::size_t i = 0; i < keep.size(); ++i) {
    const HostTensor& own = computed.at(sample.graph.outputs[i].name);
    ASSERT_EQ(own.shape(), wanted[i].shape);
    EXPECT_EQ(difference(to_value(own).data, wanted[i].data, tolerance), std::nullopt)
        << sample.graph.outputs[i].name << " " << what;
  }
}

void expect_reference_in_every_way(const Sample& sample, const Tolerance& tolerance = {1e-4, 2e-5, 1e-4}) {
  const TensorMap fused = forward_and_gradient(sample, with(true, true, 1, 7e8f));
  expect_reference(sample, fused, tolerance, "fused");
  expect_same_bits(fused, forward_and_gradient(sample, with(true, true, 1, -3e-9f)), "other rubbish in memory");
  expect_same_bits(fused, forward_and_gradient(sample, guarded(true, true, 3)), "three threads");
  expect_same_bits(fused, forward_and_gradient(sample, guarded(true, false, 1)), "a buffer a tensor");
  expect_reference(sample, forward_and_gradient(sample, guarded(false, true, 2)), tolerance, "unfused");
}

std::vector<Op> computed_ops() {
  std::vector<Op> list;
  for (const OpInfo& row : op_table())
    if (row.lowering != Lowering::Leaf) list.push_back(row.op);
  return list;
}

class EngineOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, EngineOp, ::testing::ValuesIn(computed_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(EngineOp, EqualsTheReference) {
  const auto& cases = cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    expect_reference_in_every_way(with_sizes(sample_of(GetParam(), cases[i])));
  }
}

TEST_P(EngineOp, EqualsTheReferenceInLargeShapes) {
  const auto cases = large_cases_of(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    expect_reference_in_every_way(sample_of(GetParam(), cases[i]));
  }
}

class EngineRandomGraph : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, EngineRandomGraph, ::testing::Range(0u, 40u));

TEST_P(EngineRandomGraph, EqualsTheReference) {
  const Differentiated it = random_graph(GetParam(), 24);
  expect_reference_in_every_way(with_sizes({it.graph, it.inputs}), {1e-3, 1e-4, 1e-4});
}

}  // namespace
}  // namespace jerboa::test
