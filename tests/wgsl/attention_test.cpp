#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/transform/grad.h>

#include "ops/case.h"
#include "ops/gradient_check.h"
#include "verify/compare.h"

// The shaders of attention and its gradient against the reference in f64, in all their forms: the one for drivers on
// the CPU, and those for GPUs, which such a driver runs as well.
namespace jerboa::test {
namespace {

struct Form {
  const char* name;
  Target target;
};

Form software_form() {
  Target target = Target::webgpu_default();
  target.software = true;
  return {"software", target};
}

// What every device has.
Form least_gpu_form() {
  Target target = Target::webgpu_default();
  target.software = false;
  return {"least_gpu", target};
}

Form large_gpu_form() {
  Target target = Target::webgpu_default();
  target.software = false;
  target.workgroup_bytes = 32768;
  target.max_bindings = 16;
  target.f16 = true;
  target.subgroup_size = 64;
  return {"large_gpu", target};
}

void PrintTo(const Form& form, std::ostream* stream) { *stream << form.name; }

struct Sample {
  Graph graph;
  std::map<std::string, Value> inputs;
};

// The loss and the gradients for all float operands, and what attention itself gives.
Sample sample_of(const Case& one, DType floats) {
  Sample result;
  Sample forward;
  if (const auto differentiated = first_order(Op::attention, one, floats)) {
    result = {differentiated->graph, differentiated->inputs};
    trace_into(result.graph, [&] {
      const std::uint64_t identity = result.graph.identity();
      for (std::size_t i = 0; i < differentiated->grads.size(); ++i)
        output("grad" + std::to_string(i), Tensor(identity, differentiated->grads[i]));
      for (const Node& node : std::vector<Node>(result.graph.nodes))
        if (node.op == Op::attention) {
          output("out", Tensor(identity, node.outputs[0]));
          output("lse", Tensor(identity, node.outputs[1]));
        }
    });
  }
  return result;
}

// One device a form. Memory holds rubbish before a run.
Device device_of(const Form& form) {
  static std::map<std::string, std::shared_ptr<Backend>> backends;
  std::shared_ptr<Backend>& backend = backends[form.name];
  if (backend == nullptr) {
    WebGpuOptions options;
    options.target = form.target;
    options.sentinel = 7e8f;
    backend = make_webgpu_backend(options);
  }
  return Device(backend);
}

TensorMap outputs_on(const Form& form, const Sample& sample) {
  Session session(device_of(form));
  session.add_entry("run", sample.graph);
  TensorMap host;
  for (const TensorInfo& tensor : sample.graph.tensors)
    if (tensor.storage == Storage::input) host.emplace(tensor.name, to_host(sample.inputs.at(tensor.name)));
  const Result result = session.run("run", host);
  TensorMap outputs;
  for (const std::string& name : result.names()) outputs.emplace(name, result.get(name));
  return outputs;
}

void expect_reference(const Sample& sample, const Form& form, const Tolerance& tolerance) {
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  const auto wanted = run(sample.graph, keep, sample.inputs);
  const TensorMap computed = outputs_on(form, sample);
  for (std::size_t i = 0; i < keep.size(); ++i) {
    const HostTensor& own = computed.at(sample.graph.outputs[i].name);
    ASSERT_EQ(own.shape(), wanted[i].shape);
    EXPECT_EQ(difference(to_value(own).data, wanted[i].data, tolerance), std::nullopt) << sample.graph.outputs[i].name;
  }
}

class AttentionShaders : public ::testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, AttentionShaders,
                         ::testing::Values(software_form(), least_gpu_form(), large_gpu_form()),
                         [](const ::testing::TestParamInfo<Form>& param) { return std::string(param.param.name); });

constexpr Tolerance f32_tolerance{1e-4, 2e-5, 1e-4};

TEST_P(AttentionShaders, ComputeTheSampleCases) {
  const auto& cases = cases_of(Op::attention);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(Op::attention, i, cases[i]));
    expect_reference(sample_of(cases[i], DType::f32), GetParam(), f32_tolerance);
  }
}

Case attention_case(Shape q, Shape k, Shape v, AttentionAttrs attrs, std::vector<Draw> rest = {}) {
  Case one{{within(-1, 1, std::move(q)), within(-1, 1, std::move(k)), within(-1, 1, std::move(v))}, attrs, {0}};
  while (rest.size() < 4) rest.push_back(absent());
  one.operands.insert(one.operands.end(), rest.begin(), rest.end());
  return one;
}

// Sizes that make several tiles, and do not fill them.
std::vector<Case> tiled_cases() {
  const AttentionAttrs causal{0, true, 0, 0, false};
  return {
      attention_case({1, 2, 70, 64}, {1, 2, 130, 64}, {1, 2, 130, 64}, causal),
      attention_case({2, 4, 70, 24}, {2, 2, 130, 24}, {2, 2, 130, 40}, {0, true, 33, 0, false}, {absent(), any({4})}),
      attention_case({1, 4, 70, 5}, {1, 1, 70, 5}, {1, 1, 70, 7}, {0.3, false, 0, 3, false}, {any({4, 1, 70})}),
      attention_case({2, 2, 70, 16}, {2, 2, 130, 16}, {2, 2, 130, 16}, {},
                     {flags({2, 1, 70, 130}), absent(), given({2}, {100, 7})}),
      attention_case({1, 2, 66, 80}, {1, 2, 66, 80}, {1, 2, 66, 96}, causal, {any({66, 66}), any({2})}),
      attention_case({2, 2, 20, 8}, {2, 2, 72, 8}, {2, 2, 72, 8}, {0, true, 40, 0, true},
                     {absent(), absent(), given({2}, {50, 200}), whole(40, 199, {2, 20})}),
      attention_case({1, 1, 20, 128}, {1, 1, 40, 128}, {1, 1, 40, 200}, causal),
  };
}

// Few queries, many keys.
std::vector<Case> decode_cases() {
  const AttentionAttrs causal{0, true, 0, 0, false};
  return {
      attention_case({2, 4, 1, 64}, {2, 2, 1000, 64}, {2, 2, 1000, 64}, causal,
                     {absent(), absent(), given({2}, {1000, 333}), given({2, 1}, {999, 332})}),
      attention_case({1, 6, 1, 24}, {1, 2, 300, 24}, {1, 2, 300, 20}, {0, true, 100, 5, false}, {absent(), any({6})}),
      attention_case({3, 2, 2, 16}, {3, 2, 400, 16}, {3, 2, 400, 16}, {},
                     {any({2, 1, 400}), absent(), given({3}, {400, 0, 17})}),
      attention_case({1, 9, 1, 128}, {1, 1, 260, 128}, {1, 1, 260, 128}, causal, {flags({260})}),
      attention_case({2, 2, 1, 8}, {2, 2, 96, 8}, {2, 2, 96, 8}, {0, true, 90, 0, true},
                     {absent(), absent(), given({2}, {50, 1000}), given({2, 1}, {49, 999})}),
  };
}

TEST_P(AttentionShaders, ComputeSeveralTiles) {
  const auto cases = tiled_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(Op::attention, i, cases[i]));
    expect_reference(sample_of(cases[i], DType::f32), GetParam(), f32_tolerance);
  }
}

TEST_P(AttentionShaders, ComputeFewQueriesOnManyKeys) {
  const auto cases = decode_cases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(Op::attention, i, cases[i]));
    expect_reference(sample_of(cases[i], DType::f32), GetParam(), f32_tolerance);
  }
}

}  // namespace
}  // namespace jerboa::test
