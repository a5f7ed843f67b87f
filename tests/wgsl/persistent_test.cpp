#include "wgsl/persistent.h"

#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/models/family.h>
#include <jerboa/models/greedy.h>

#include "wgsl/folding.h"

// Steps of a program as phases of one dispatch: the same results as from one dispatch for each. Drivers on the CPU run
// one workgroup, and some of them two, at the same time.
namespace jerboa::test::persistent_test {
namespace {

Target phase_target(int workgroups, int subgroup_size = 0) {
  Target target = gpu_target(subgroup_size);
  target.workgroup_bytes = 32768;
  target.persistent_workgroups = workgroups;
  return target;
}

Device device_with(const Target& target) { return Device::webgpu({.target = target}); }

Tensor chain(Tensor x, int layers, std::int64_t width) {
  for (int i = 0; i < layers; ++i) x = softmax(tanh(linear("w" + std::to_string(i), x, width, DType::f32)), -1) * 64.0;
  return x;
}

Graph chain_graph(int layers, std::int64_t width) {
  return trace([&] { output("y", chain(tensor_input("x", {1, width}), layers, width)); });
}

int dispatches_on(const Device& device, const Graph& graph) {
  Session session(device);
  session.add_entry("run", graph);
  return session.kernel_count("run");
}

// Runs a graph as one dispatch, several times.
void expect_one_dispatch(const Graph& graph, const Target& target) {
  const Device device = device_with(target);
  EXPECT_EQ(dispatches_on(device, graph), 1);
  expect_reference_on(device, graph, inputs_of(graph), 3, 2e-5);
}

TEST(PersistentDispatch, EqualsTheReference) {
  for (const int workgroups : {1, 2})
    for (const int subgroup_size : {0, 32})
      expect_one_dispatch(chain_graph(6, 256), phase_target(workgroups, subgroup_size));
}

// A product reads a row in fours, and a softmax of the same phase a part of it that begins anywhere.
TEST(PersistentDispatch, StagesWhatOnlyOnePartOfAPhaseReadsInFours) {
  const Graph graph = trace([] {
    const Tensor x = chain(tensor_input("x", {1, 64}), 5, 64);
    output("y", linear("v", x, 64, DType::f32));
    output("z", softmax(slice(x, 1, 1, 64), -1));
  });
  expect_one_dispatch(graph, phase_target(1));
}

struct Greedy {
  DType weights, cache;
  bool f16;
};

// A decoder's step, whose states are updated in place.
TEST(PersistentDispatch, WritesTheTokensOfSeparateDispatches) {
  const models::Config config = models::Config::parse(R"({"model_type": "llama", "hidden_size": 64,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
      "intermediate_size": 96, "vocab_size": 320, "hidden_act": "silu", "rms_norm_eps": 1e-5,
      "max_position_embeddings": 4096})",
                                                      "config.json");
  for (const Greedy& form : {Greedy{DType::f32, DType::f32, false}, Greedy{DType::f16, DType::f16, true},
                             Greedy{DType::bf16, DType::f32, true}}) {
    SCOPED_TRACE(name(form.weights));
    const models::GreedyOptions options{.cache = {.capacity = 64, .chunk = 8, .dtype = form.cache},
                                        .weights = form.weights};
    const Graph graph = models::greedy_step_graph(config, options);
    std::vector<std::vector<int>> tokens;
    for (const int workgroups : {0, 2}) {
      Target target = phase_target(workgroups, 32);
      target.f16 = form.f16;
      Session session(device_with(target));
      session.add_entry("step", graph);
      EXPECT_EQ(session.kernel_count("step") == 1, workgroups > 0);
      std::uint64_t seed = 1;
      for (const TensorInfo& tensor : graph.tensors) {
        if (tensor.storage != Storage::param || !tensor.tied_to.empty()) continue;
        session.upload_param(tensor.name,
                             random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++).bytes());
      }
      tokens.emplace_back();
      for (int i = 0; i < 20; ++i)
        tokens.back().push_back(static_cast<int>(session.run("step", {}).get("token").item()));
    }
    EXPECT_EQ(tokens[0], tokens[1]);
  }
}

}  // namespace
}  // namespace jerboa::test::persistent_test
