#include "ops/sample.h"

#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/transform/grad.h>

#include "backend/cpu/reference/finish.h"
#include "verify/compare.h"

namespace jerboa::test {
namespace {

// Symbols get their values from the inputs' shapes; one that no input has in its shape needs one that does.
Sample with_sizes(Sample sample) {
  if (!sample.graph.symbols().empty()) trace_into(sample.graph, [] { tensor_input("sizes", {T, B}); });
  return sample;
}

Sample plain(Op op, const Case& sample, DType floats) {
  Sample result;
  result.graph = trace([&] {
    const Instance instance = build(op, sample, result.inputs, floats);
    for (std::size_t i = 0; i < instance.outputs.size(); ++i) output("out" + std::to_string(i), instance.outputs[i]);
  });
  return result;
}

std::optional<Differentiated> differentiated(Op op, const Case& sample, DType floats) {
  const Gradient column = info(op).gradient;
  const bool passes_back = column == Gradient::Rule || column == Gradient::Decompose;
  return passes_back ? first_order(op, sample, floats) : std::nullopt;
}

Sample differentiated_or_plain(Op op, const Case& sample) {
  const auto it = differentiated(op, sample, DType::f32);
  if (!it) return plain(op, sample, DType::f32);
  Sample result = with_gradients(*it);
  trace_into(result.graph, [&] { output("loss", Tensor(result.graph.identity(), it->loss)); });
  return result;
}

}  // namespace

Sample with_gradients(const Differentiated& differentiated) {
  Sample result{differentiated.graph, differentiated.inputs};
  trace_into(result.graph, [&] {
    for (std::size_t i = 0; i < differentiated.grads.size(); ++i)
      output("grad" + std::to_string(i), Tensor(result.graph.identity(), differentiated.grads[i]));
  });
  return result;
}

Sample sample_of(Op op, const Case& sample) { return with_sizes(differentiated_or_plain(op, sample)); }

Sample forward_sample_of(Op op, const Case& sample, DType floats) { return with_sizes(plain(op, sample, floats)); }

std::optional<Sample> gradient_sample_of(Op op, const Case& sample, DType floats) {
  const auto it = differentiated(op, sample, floats);
  if (!it) return std::nullopt;
  Sample result = with_gradients(*it);
  trace_into(result.graph, [&] {
    for (std::size_t i = 0; i < it->outputs.size(); ++i)
      output("out" + std::to_string(i), Tensor(result.graph.identity(), it->outputs[i]));
  });
  return with_sizes(result);
}

std::vector<Value> reference_outputs(const Sample& sample, const std::function<void(Value&)>& finish) {
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  const Value sizes{DType::f32, evaluate({T, B}, symbol_values), std::vector<double>(10, 0.0)};
  return reference::evaluate_with(
      sample.graph, keep,
      [&](const TensorInfo& leaf) { return leaf.name == "sizes" ? sizes : sample.inputs.at(leaf.name); }, symbol_values,
      finish);
}

TensorMap outputs_on(const Device& device, const Sample& sample) {
  const std::int64_t reference_before = reference_evaluations();
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
  EXPECT_EQ(reference_evaluations() - reference_before, 0) << "the engine falls back on the reference";
  return outputs;
}

void expect_same_bits(const TensorMap& a, const TensorMap& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor == b.at(name)) << name << " differs: " << what;
}

void expect_reference(const Sample& sample, const TensorMap& computed, const std::string& what,
                      const Tolerance& tolerance) {
  const auto wanted = reference_outputs(sample, [](Value&) {});
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const HostTensor& tensor = computed.at(sample.graph.outputs[i].name);
    ASSERT_EQ(tensor.shape(), wanted[i].shape);
    EXPECT_EQ(difference(to_value(tensor).data, wanted[i].data, tolerance), std::nullopt)
        << sample.graph.outputs[i].name << " " << what;
  }
}

std::vector<Op> computed_ops() {
  std::vector<Op> list;
  for (const OpInfo& row : op_table())
    if (row.lowering != Lowering::Leaf) list.push_back(row.op);
  return list;
}

}  // namespace jerboa::test
