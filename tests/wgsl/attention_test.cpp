#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/transform/grad.h>

#include "ops/gradient_check.h"
#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/folding.h"
#include "wgsl/shared_device.h"

// The shaders of attention and its gradient against the reference in f64, at sizes that make several tiles and do not
// fill them, and for few queries on many keys: in the form for software drivers and in those for GPUs, with what
// every device has and with more. Without an adapter the tests fail and say why.
namespace jerboa::test::attention_test {
namespace {

enum class Form { software, plain_gpu, rich_gpu };

WebGpuOptions options_of(Form form) {
  WebGpuOptions options;
  options.target = Target::webgpu_default();
  options.target->software = form == Form::software;
  if (form == Form::rich_gpu) {
    options.target->workgroup_bytes = 32768;
    options.target->max_bindings = 16;
    options.target->f16 = true;
  }
  return options;
}

const Device& device(Form form) { return shared_device(form, options_of); }

// The results of attention, and the gradients of all float operands.
Sample sample_of(const Case& one, DType floats) {
  Sample result = with_gradients(*first_order(Op::attention, one, floats));
  trace_into(result.graph, [&] {
    const std::uint64_t identity = result.graph.identity();
    for (const Node& node : std::vector<Node>(result.graph.nodes))
      if (node.op == Op::attention) {
        output("out", Tensor(identity, node.outputs[0]));
        output("lse", Tensor(identity, node.outputs[1]));
      }
  });
  return result;
}

struct Trial {
  Form form;
  std::string name;
  Case one;
  DType floats = DType::f32;
};

void PrintTo(const Trial& trial, std::ostream* stream) { *stream << trial.name; }

Case attention_case(const Shape& q, const Shape& k, const Shape& v, AttentionAttrs attrs, std::vector<Draw> rest = {}) {
  Case one{{within(-1, 1, q), within(-1, 1, k), within(-1, 1, v)}, attrs, {0}};
  rest.resize(5, absent());
  one.operands.insert(one.operands.end(), rest.begin(), rest.end());
  return one;
}

// With keys and values in 8 bits, whose shapes count features.
Case packed_case(const Shape& q, const Shape& k, const Shape& v, AttentionAttrs attrs, std::vector<Draw> rest) {
  Case one = attention_case(q, k, v, attrs, std::move(rest));
  one.operands[1] = packed_rows(k);
  one.operands[2] = packed_rows(v);
  return one;
}

std::vector<Trial> trials() {
  const AttentionAttrs causal{0, true, 0, 0, false};
  const Case window =
      attention_case({2, 4, 70, 24}, {2, 2, 130, 24}, {2, 2, 130, 40}, {0, true, 33, 0, false}, {absent(), any({4})});
  const Case cache = attention_case({2, 4, 1, 64}, {2, 2, 1000, 64}, {2, 2, 1000, 64}, causal,
                                    {absent(), absent(), given({2}, {1000, 333}), given({2, 1}, {999, 332})});
  // Blocks in any order, of which both sequences share one, and none where nothing is seen.
  const std::vector<double> lengths{100, 61}, blocks{4, 0, 7, 2, 5, -1, -1, -1, 4, 1, 6, 3, -1, -1, -1, -1};
  const auto paged = [&](int time, const AttentionAttrs& attrs) {
    std::vector<double> positions;
    for (const double length : lengths)
      for (int t = 0; t < time; ++t) positions.push_back(length - time + t);
    return attention_case(
        {2, 4, time, 24}, {8, 2, 20, 24}, {8, 2, 20, 20}, attrs,
        {absent(), any({4}), given({2}, lengths), given({2, time}, positions), given({2, 8}, blocks)});
  };
  const Case paged_ring = attention_case({2, 2, 20, 8}, {10, 2, 9, 8}, {10, 2, 9, 8}, {0, true, 40, 0, true},
                                         {absent(), absent(), given({2}, {50, 200}), whole(40, 199, {2, 20}),
                                          given({2, 8}, {9, 3, 5, 1, 7, 0, -1, -1, 2, 4, 6, 8, 0, 9, 3, 5})});
  const auto packed = [&](std::int64_t time, std::int64_t size) {
    std::vector<double> positions;
    for (const double length : lengths)
      for (std::int64_t t = 0; t < time; ++t) positions.push_back(length - static_cast<double>(time - t));
    return packed_case({2, 4, time, size}, {8, 2, 20, size}, {8, 2, 20, size}, causal,
                       {absent(), any({4}), given({2}, lengths), given({2, time}, positions), given({2, 8}, blocks)});
  };
  const Case packed_straight = packed_case({2, 2, 20, 20}, {2, 2, 72, 20}, {2, 2, 72, 40}, {0, true, 40, 0, true},
                                           {absent(), absent(), given({2}, {50, 200}), whole(40, 199, {2, 20})});
  return {
      {Form::software, "software_packed", packed(1, 80)},
      {Form::software, "software_packed_ring", packed_straight},
      {Form::plain_gpu, "plain_gpu_packed_decode", packed(2, 24)},
      {Form::plain_gpu, "plain_gpu_packed_stream", packed(1, 64)},
      {Form::plain_gpu, "plain_gpu_packed_tiles", packed(40, 36)},
      {Form::plain_gpu, "plain_gpu_packed_ring", packed_straight},
      {Form::rich_gpu, "rich_gpu_packed_stream", packed(1, 256)},
      {Form::rich_gpu, "rich_gpu_packed_tiles", packed(40, 128)},
      {Form::rich_gpu, "rich_gpu_packed_f16", packed(3, 64), DType::f16},
      {Form::software, "software_paged", paged(1, causal)},
      {Form::software, "software_paged_ring", paged_ring},
      {Form::plain_gpu, "plain_gpu_paged_few_queries", paged(2, causal)},
      {Form::plain_gpu, "plain_gpu_paged_ring", paged_ring},
      {Form::rich_gpu, "rich_gpu_paged_window", paged(40, {0, true, 33, 0, false})},
      {Form::rich_gpu, "rich_gpu_paged_f16", paged(1, causal), DType::f16},
      {Form::software, "software_window", window},
      {Form::software, "software_cache", cache},
      {Form::plain_gpu, "plain_gpu_window", window},
      {Form::plain_gpu, "plain_gpu_cache", cache},
      {Form::plain_gpu, "plain_gpu_float_mask",
       attention_case({1, 4, 70, 5}, {1, 1, 70, 5}, {1, 1, 70, 7}, {0.3, false, 0, 3, false}, {any({4, 1, 70})})},
      {Form::plain_gpu, "plain_gpu_ring",
       attention_case({2, 2, 20, 8}, {2, 2, 72, 8}, {2, 2, 72, 8}, {0, true, 40, 0, true},
                      {absent(), absent(), given({2}, {50, 200}), whole(40, 199, {2, 20})})},
      {Form::rich_gpu, "rich_gpu_causal", attention_case({1, 2, 70, 64}, {1, 2, 130, 64}, {1, 2, 130, 64}, causal)},
      {Form::rich_gpu, "rich_gpu_bool_mask",
       attention_case({2, 2, 70, 16}, {2, 2, 130, 16}, {2, 2, 130, 80}, {},
                      {flags({2, 1, 70, 130}), absent(), given({2}, {100, 7})})},
      {Form::rich_gpu, "rich_gpu_few_queries",
       attention_case({1, 6, 1, 24}, {1, 2, 300, 24}, {1, 2, 300, 20}, {0, true, 200, 5, false}, {absent(), any({6})})},
      {Form::rich_gpu, "rich_gpu_f16", attention_case({1, 4, 40, 20}, {1, 2, 40, 20}, {1, 2, 40, 20}, causal),
       DType::f16},
  };
}

// Trials whose shaders take a software driver long to compile although they resemble others, or the rest.
std::vector<Trial> some(bool slow) {
  const std::set<std::string> names{"plain_gpu_float_mask", "plain_gpu_window", "rich_gpu_bool_mask", "rich_gpu_f16"};
  std::vector<Trial> all = trials();
  std::erase_if(all, [&](const Trial& trial) { return names.contains(trial.name) != slow; });
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Trial>& param) { return param.param.name; }

class AttentionShaders : public ::testing::TestWithParam<Trial> {};
INSTANTIATE_TEST_SUITE_P(Forms, AttentionShaders, ::testing::ValuesIn(some(false)), name_of);
INSTANTIATE_TEST_SUITE_P(OtherForms, AttentionShaders, ::testing::ValuesIn(some(true)), name_of);

TEST_P(AttentionShaders, EqualTheReferenceAndThemselves) {
  const Trial& trial = GetParam();
  const Sample sample = sample_of(trial.one, trial.floats);
  const TensorMap computed = outputs_on(device(trial.form), sample);
  expect_same_bits(computed, outputs_on(device(trial.form), sample), "a second time");
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  const auto wanted = test::run(sample.graph, keep, sample.inputs);
  const Tolerance tolerance = trial.floats == DType::f32 ? Tolerance{1e-4, 2e-5, 1e-4} : Tolerance{1e-2, 3e-3, 1e-2};
  for (std::size_t i = 0; i < keep.size(); ++i) {
    const std::string& name = sample.graph.outputs[i].name;
    EXPECT_EQ(difference(to_value(computed.at(name)).data, wanted[i].data, tolerance), std::nullopt) << name;
  }
}

// With this many features, only two rows of values fit into the tile, which a loop of four copies fills otherwise.
TEST(AttentionTiles, HoldLargeHeadsInLittleMemory) {
  const Target target = Target::webgpu_default();
  ASSERT_EQ(target.workgroup_bytes, 16384);
  ASSERT_EQ(target.unroll, 4);
  for (const std::int64_t size : {384, 448, 512}) {
    const Graph graph = trace([&] {
      const auto heads = [&](const char* name) { return tensor_input(name, {1, 1, 40, size}); };
      output("y", attention(heads("q"), heads("k"), heads("v"), {.causal = true}));
    });
    Program program = lower(graph, target);
    emit_wgsl(program, target);
    EXPECT_NE(program.gpu.shaders.front().source.find("thread_row"), std::string::npos) << "not in tiles";
    const TensorMap inputs = inputs_of(graph);
    const auto executable = device(Form::plain_gpu).backend().load(program, [](const std::string&) { return nullptr; });
    const HostTensor computed = executable->run({{inputs.begin(), inputs.end()}, {}, {}})->read("y");
    Session reference(Device::reference());
    reference.add_entry("run", graph);
    const HostTensor wanted = reference.run("run", inputs).get("y");
    for (std::int64_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(computed.number(i), wanted.number(i), 1e-5) << size;
  }
}

// Parts of tensors leave no bindings for what tiles would need to compute the terms of rows themselves.
TEST(AttentionTiles, BindNoMoreWhereTensorsAreInParts) {
  constexpr std::int64_t time = 64;
  Target target = Target::webgpu_default();
  target.max_bindings = 13;
  const Graph graph = trace([] {
    const auto heads = [](const char* name) { return tensor_input(name, {2, 4, time, 16}); };
    const Tensor q = heads("q"), k = heads("k"), v = heads("v"), dout = heads("dout");
    int number = 0;
    for (const Tensor& grad : vector_jacobian({attention(q, k, v, {.causal = true})}, {dout}, {q, k, v}))
      output(std::to_string(number++), grad);
  });
  const auto has_row_terms = [&] {
    Program program = lower(graph, target);
    emit_wgsl(program, target);
    const std::vector<ShaderSource>& shaders = program.gpu.shaders;
    return std::any_of(shaders.begin(), shaders.end(),
                       [](const ShaderSource& shader) { return shader.name == "attention_row_terms"; });
  };
  EXPECT_FALSE(has_row_terms());
  target.max_binding_bytes = 2 * 4 * time * 16 * 4 / 2;
  EXPECT_TRUE(has_row_terms());
}

}  // namespace
}  // namespace jerboa::test::attention_test
