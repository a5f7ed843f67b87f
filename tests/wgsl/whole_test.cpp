#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/transform/grad.h>

#include "ops/case.h"
#include "ops/gradient_check.h"
#include "verify/compare.h"

// Ops on whole tensors on WebGPU against the reference in f64, forward and gradient: the sample cases and larger ones
// that take several tiles and passes, in the form for drivers on the CPU and in that for GPUs.
namespace jerboa::test {
namespace {

using Inputs = std::map<std::string, Value>;

struct Sample {
  Graph graph;
  Inputs inputs;
};

void add_sizes(Graph& graph) {
  if (!graph.symbols().empty()) trace_into(graph, [] { tensor_input("sizes", {T, B}); });
}

Sample forward(Op op, const Case& own) {
  Sample result;
  result.graph = trace([&] {
    const Instance instance = build(op, own, result.inputs);
    for (std::size_t i = 0; i < instance.outputs.size(); ++i) output("out" + std::to_string(i), instance.outputs[i]);
  });
  add_sizes(result.graph);
  return result;
}

std::optional<Sample> gradient(Op op, const Case& own) {
  const Gradient column = info(op).gradient;
  if (column != Gradient::Rule && column != Gradient::Decompose) return std::nullopt;
  const auto differentiated = first_order(op, own);
  if (!differentiated) return std::nullopt;
  Sample result{differentiated->graph, differentiated->inputs};
  trace_into(result.graph, [&] {
    for (std::size_t i = 0; i < differentiated->grads.size(); ++i)
      output("grad" + std::to_string(i), Tensor(result.graph.identity(), differentiated->grads[i]));
  });
  add_sizes(result.graph);
  return result;
}

// One device for all tests; it fails where there is none.
Device device(bool software) {
  static std::map<bool, std::shared_ptr<Backend>> known;
  auto& own = known[software];
  if (!own) {
    WebGpuOptions options;
    options.target = Target{};
    options.target->workgroup_bytes = 16384;
    options.target->software = software;
    options.sentinel = 7e8F;
    own = make_webgpu_backend(options);
  }
  return Device(own);
}

TensorMap outputs_on(const Device& device, const Sample& sample) {
  Session session(device);
  session.add_entry("run", sample.graph);
  TensorMap host;
  for (const TensorInfo& tensor : sample.graph.tensors)
    if (tensor.storage == Storage::input && tensor.name != "sizes")
      host.emplace(tensor.name, to_host(sample.inputs.at(tensor.name)));
  if (sample.graph.find("sizes") != no_tensor)
    host["sizes"] = HostTensor(DType::f32, evaluate(sample.graph.shape(sample.graph.find("sizes")), symbol_values));
  const Result result = session.run("run", host);
  TensorMap outputs;
  for (const std::string& name : result.names()) outputs.emplace(name, result.get(name));
  return outputs;
}

void expect_reference(const Sample& sample) {
  Inputs inputs = sample.inputs;
  inputs["sizes"] = Value{DType::f32, evaluate({T, B}, symbol_values), std::vector<double>(10, 0.0)};
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  const auto wanted = run(sample.graph, keep, inputs);
  for (const bool software : {true, false}) {
    const TensorMap computed = outputs_on(device(software), sample);
    for (std::size_t i = 0; i < keep.size(); ++i) {
      const HostTensor& own = computed.at(sample.graph.outputs[i].name);
      ASSERT_EQ(own.shape(), wanted[i].shape);
      EXPECT_EQ(difference(to_value(own).data, wanted[i].data, Tolerance{1e-4, 2e-5, 1e-4}), std::nullopt)
          << sample.graph.outputs[i].name << (software ? " for the CPU" : " for GPUs");
    }
  }
}

const std::vector<Op>& whole_ops() {
  static const std::vector<Op> list = {Op::embedding,
                                       Op::embedding_grad,
                                       Op::take_along_axis,
                                       Op::scatter,
                                       Op::scatter_add,
                                       Op::cache_append,
                                       Op::cumsum,
                                       Op::top_k,
                                       Op::argsort,
                                       Op::conv1d,
                                       Op::conv2d,
                                       Op::conv2d_input_grad,
                                       Op::conv2d_weight_grad,
                                       Op::max_pool2d,
                                       Op::max_pool2d_grad,
                                       Op::avg_pool2d,
                                       Op::avg_pool2d_grad,
                                       Op::matmul_grouped,
                                       Op::matmul_grouped_weight_grad};
  return list;
}

// Larger than one tile, block or list of the shaders.
std::vector<Case> large_cases(Op op) {
  switch (op) {
    case Op::embedding_grad:
      return {{{whole(-3, 700, {3, 900}), any({3, 900, 8})}, EmbeddingGradAttrs{650}},
              {{whole(0, 1, {1500}), any({1500, 3})}, EmbeddingGradAttrs{300}},
              {{whole(0, 2999, {5000}, DType::u32), any({5000, 4})}, EmbeddingGradAttrs{3000}}};
    case Op::scatter:
    case Op::scatter_add:
      return {{{any({2, 300}), whole(-20, 320, {2, 2500}), any({2, 2500})}, AxisAttrs{1}},
              {{any({40, 3}), whole(0, 39, {200, 3}), any({200, 3})}, AxisAttrs{0}},
              {{whole(0, 9, {300}, DType::u32), whole(0, 299, {400}), whole(0, 9, {400}, DType::u32)}, AxisAttrs{0}}};
    case Op::cache_append:
      return {{{flags({2, 2, 20, 3}), flags({2, 2, 30, 3}), whole(-5, 30, {2, 30})}, CacheAppendAttrs{}},
              {{any({2, 2, 40, 3}), any({2, 2, 30, 3}), whole(-5, 50, {2, 30})}, CacheAppendAttrs{}},
              {{any({2, 2, 16, 3}), any({2, 2, 40, 3}), whole(-5, 90, {2, 40})}, CacheAppendAttrs{true}}};
    case Op::cumsum:
      return {{{any({2, 2500})}, CumsumAttrs{1, false}},
              {{any({300, 2})}, CumsumAttrs{0, true}},
              {{whole(0, 2000000000, {2, 1100, 2}, DType::u32)}, CumsumAttrs{1, false}}};
    case Op::top_k:
      return {{{apart({2, 90})}, TopKAttrs{5, -1}},           {{apart({500, 2})}, TopKAttrs{200, 0}},
              {{apart({2, 7000})}, TopKAttrs{3, -1}},         {{whole(0, 50, {1, 9000})}, TopKAttrs{40, -1}},
              {{whole(0, 9, {5000, 2})}, TopKAttrs{3000, 0}}, {{whole(0, 1, {30000}, DType::u32)}, TopKAttrs{60, 0}}};
    case Op::argsort:
      return {{{apart({2, 100})}, ArgsortAttrs{-1, true}},
              {{whole(0, 1500, {5000, 2})}, ArgsortAttrs{0, false}},
              {{whole(0, 20, {2, 9000}, DType::u32)}, ArgsortAttrs{1, true}},
              {{apart({3, 2048})}, ArgsortAttrs{}}};
    case Op::conv2d:
      return {{{any({2, 20, 13, 11}), any({40, 20, 3, 3}), any({40})}, Conv2dAttrs{{1, 1}, {1, 1}, {1, 1}, 1}},
              {{any({3, 20, 14, 9}), any({24, 10, 3, 2}), absent()}, Conv2dAttrs{{2, 1}, {2, 1}, {1, 2}, 2}},
              {{any({2, 12, 15, 15}), any({12, 1, 3, 3}), any({12})}, Conv2dAttrs{{1, 1}, {1, 1}, {1, 1}, 12}}};
    case Op::max_pool2d: return {{{apart({2, 5, 17, 19})}, PoolAttrs{{3, 3}, {2, 2}, {1, 1}}}};
    case Op::avg_pool2d: return {{{any({2, 5, 17, 19})}, PoolAttrs{{3, 2}, {1, 2}, {1, 0}}}};
    case Op::matmul_grouped:
      return {{{any({150, 40}), any({5, 40, 70}), given({6}, {2, 40, 40, 41, 130, 149})}, GroupedAttrs{}},
              {{any({150, 40}), any({5, 70, 40}), given({6}, {0, 70, 71, 71, 71, 150})}, GroupedAttrs{true}}};
    default: return {};
  }
}

class WholeOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, WholeOp, ::testing::ValuesIn(whole_ops()),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

void expect_reference(Op op, const std::vector<Case>& cases) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(op, i, cases[i]));
    expect_reference(forward(op, cases[i]));
    if (const auto sample = gradient(op, cases[i])) expect_reference(*sample);
  }
}

TEST_P(WholeOp, EqualsTheReference) { expect_reference(GetParam(), cases_of(GetParam())); }

TEST_P(WholeOp, EqualsTheReferenceInSeveralParts) { expect_reference(GetParam(), large_cases(GetParam())); }

}  // namespace
}  // namespace jerboa::test
