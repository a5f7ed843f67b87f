#include "cpu/ieee.h"

#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>

#include "base/simd_targets.h"
// After simd_targets.h:
#include <hwy/targets.h>

namespace jerboa::test {
namespace {

// The engine uses the instruction set chosen here until the end of the scope.
class InstructionSet {
 public:
  explicit InstructionSet(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~InstructionSet() { hwy::SetSupportedTargetsForTest(0); }
  InstructionSet(const InstructionSet&) = delete;
  InstructionSet& operator=(const InstructionSet&) = delete;
};

const std::vector<std::int64_t>& instruction_sets() {
  static const std::vector<std::int64_t> list = hwy::SupportedAndGeneratedTargets();
  return list;
}

Value by_reference(const Sample& sample, ReferencePrecision precision) {
  std::vector<TensorId> keep;
  for (const NamedTensor& output : sample.graph.outputs) keep.push_back(output.tensor);
  return run(sample.graph, keep, sample.inputs, precision).front();
}

}  // namespace

bool agrees(double computed, double wanted, double relative, double absolute) {
  if (std::isnan(wanted)) return std::isnan(computed);
  if (std::isinf(wanted)) return computed == wanted;
  return std::abs(computed - wanted) <= absolute + relative * std::abs(wanted);
}

Value floats_of(Sizes shape, const std::vector<double>& data) { return {DType::f32, std::move(shape), data}; }

Sample sample_with(const std::vector<Value>& operands, const std::function<Tensor(const std::vector<Tensor>&)>& body) {
  Sample sample;
  sample.graph = trace([&] {
    std::vector<Tensor> tensors;
    for (const Value& operand : operands) {
      const std::string name = fmt::format("x{}", tensors.size());
      sample.inputs[name] = operand;
      tensors.push_back(tensor_input(name, to_shape(operand.shape), operand.dtype));
    }
    output("y", body(tensors));
  });
  return sample;
}

void for_each_engine(const Sample& sample,
                     const std::function<void(const std::vector<double>&, const std::string&)>& check) {
  check(by_reference(sample, ReferencePrecision::f32).data, "reference");
  for (const std::int64_t target : instruction_sets())
    for (const bool fused : {true, false}) {
      const InstructionSet chosen(target);
      CpuOptions options;
      options.threads = 1;
      options.target.fuse = fused;
      const TensorMap outputs = outputs_on(Device(make_cpu_backend(options)), sample);
      check(to_value(outputs.at("y")).data,
            fmt::format("cpu with {}, {}", hwy::TargetName(target), fused ? "fused" : "unfused"));
    }
}

void expect_everywhere(const Sample& sample, const std::vector<double>& wanted, double relative, double absolute) {
  for_each_engine(sample, [&](const std::vector<double>& computed, const std::string& engine) {
    ASSERT_EQ(computed.size(), wanted.size()) << engine;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(agrees(computed[i], wanted[i], relative, absolute))
          << fmt::format("{}: element {} is {} instead of {}", engine, i, computed[i], wanted[i]);
  });
}

void expect_like_the_reference(const Sample& sample, double relative, double absolute) {
  expect_everywhere(sample, by_reference(sample, ReferencePrecision::f64).data, relative, absolute);
}

}  // namespace jerboa::test
