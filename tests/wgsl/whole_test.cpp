#include <array>
#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/backend/webgpu.h>
#include <jerboa/frontend/compile.h>

#include "ops/sample.h"
#include "verify/compare.h"
#include "wgsl/shared_device.h"

// Ops on whole tensors on WebGPU against the reference in f64, in shapes that take several tiles, blocks and passes, in
// the form for software drivers and in that for GPUs. Without an adapter the tests fail and say why.
namespace jerboa::test::whole_test {
namespace {

struct Form {
  bool software, f16;
  friend auto operator<=>(const Form&, const Form&) = default;  // NOLINT(modernize-use-nullptr): a false alarm
};

const Device& device(bool software, bool f16 = false) {
  return shared_device(Form{software, f16}, [](const Form& form) {
    WebGpuOptions options;
    options.target = Target::webgpu_default();
    options.target->max_bindings = 10;
    options.target->software = form.software;
    options.target->f16 = form.f16;
    return options;
  });
}

const char* form(bool software) { return software ? "for the CPU" : "for GPUs"; }

Sample forward(Op op, const Case& test_case, DType floats = DType::f32) {
  Sample sample;
  sample.graph = trace([&] {
    const Instance instance = build(op, test_case, sample.inputs, floats);
    for (std::size_t i = 0; i < instance.outputs.size(); ++i) output("out" + std::to_string(i), instance.outputs[i]);
  });
  return sample;
}

// Linear attention of this many tokens, with positions that skip some of them.
Case recurrence(std::int64_t time, std::int64_t keys, std::int64_t values, bool with_beta) {
  const Shape gates{2, time, 4}, key{2, time, 2, keys};
  std::vector<double> positions;
  for (std::int64_t t = 0; t < 2 * time; ++t) positions.push_back(t % 7 == 2 ? -1 : static_cast<double>(t % time + 1));
  // Keys shorter than 1, as models make them.
  const double length = 1 / std::sqrt(static_cast<double>(keys));
  return {{any({2, 4, keys, values}), any(key), within(-length, length, key), any({2, time, 4, values}),
           within(-0.3, -0.01, gates), with_beta ? within(0.1, 0.9, gates) : absent(), given({2, time}, positions),
           absent()}};
}

// Larger than one tile, block or list of the shaders. Some indices of scatters are out of range: those are dropped.
std::vector<Case> large_cases(Op op) {
  switch (op) {
    case Op::embedding_grad:
      return {{{whole(-20, 669, {3, 900}), any({3, 900, 8})}, EmbeddingGradAttrs{650}},
              {{whole(0, 1, {1500}), any({1500, 3})}, EmbeddingGradAttrs{300}},
              {{whole(0, 3019, {5000}, DType::u32), any({5000, 4})}, EmbeddingGradAttrs{3000}}};
    case Op::scatter:
    case Op::scatter_add:
      return {{{any({2, 300}), whole(-20, 320, {2, 2500}), any({2, 2500})}, AxisAttrs{1}},
              {{any({40, 3}), whole(-5, 45, {200, 3}), any({200, 3})}, AxisAttrs{0}},
              {{whole(0, 9, {300}, DType::u32), whole(0, 299, {400}), whole(0, 9, {400}, DType::u32)}, AxisAttrs{0}}};
    case Op::cache_append:
      return {
          {{any({2, 2, 40, 3}), any({2, 2, 30, 3}), whole(-5, 50, {2, 30})}, CacheAppendAttrs{}},
          {{any({2, 2, 16, 3}), any({2, 2, 40, 3}), whole(-5, 90, {2, 40})}, CacheAppendAttrs{true}},
          {{flags({2, 2, 20, 3}), flags({2, 2, 30, 3}), whole(-5, 30, {2, 30})}, CacheAppendAttrs{}},
          {{any({9, 2, 5, 3}), any({2, 2, 30, 3}), whole(-5, 30, {2, 30}), given({2, 4}, {8, 1, 6, 3, 4, -1, 2, 7})},
           CacheAppendAttrs{true}}};
    case Op::cumsum:
      return {{{any({2, 9000})}, CumsumAttrs{1, false}},
              {{any({300, 2})}, CumsumAttrs{0, true}},
              {{whole(0, 2000000000, {2, 1100, 2}, DType::u32)}, CumsumAttrs{1, false}}};
    case Op::cummax:
      return {{{distinct({2, 700})}, CumsumAttrs{1, false}}, {{whole(0, 50, {300, 2})}, CumsumAttrs{0, true}}};
    case Op::causal_conv1d:
      return {{{any({2, 3, 70}), any({2, 90, 70}), any({70, 4}), absent(), absent()}},
              {{any({5, 3, 70}), any({2, 3, 70}), any({70, 4}), absent(), given({2}, {4, 1})}}};
    case Op::linear_attention:
      return {recurrence(75, 36, 40, true), recurrence(75, 36, 40, false), recurrence(33, 100, 16, true),
              recurrence(3, 36, 40, true),  recurrence(16, 20, 64, false), recurrence(2, 1100, 4, true)};
    case Op::top_k:
      return {{{distinct({2, 90})}, TopKAttrs{5, -1}},        {{distinct({500, 2})}, TopKAttrs{200, 0}},
              {{distinct({2, 7000})}, TopKAttrs{3, -1}},      {{whole(0, 50, {1, 9000})}, TopKAttrs{40, -1}},
              {{whole(0, 9, {5000, 2})}, TopKAttrs{3000, 0}}, {{whole(0, 1, {30000}, DType::u32)}, TopKAttrs{60, 0}}};
    case Op::argsort:
      return {{{distinct({2, 100})}, ArgsortAttrs{-1, true}},
              {{whole(0, 1500, {5000, 2})}, ArgsortAttrs{0, false}},
              {{whole(0, 20, {2, 9000}, DType::u32)}, ArgsortAttrs{1, true}},
              {{distinct({3, 2048})}, ArgsortAttrs{}}};
    case Op::conv2d:
      return {{{any({2, 20, 13, 11}), any({40, 20, 3, 3}), any({40})}, Conv2dAttrs{{1, 1}, {1, 1}, {1, 1}, 1}},
              {{any({3, 20, 14, 9}), any({24, 10, 3, 2}), absent()}, Conv2dAttrs{{2, 1}, {2, 1}, {1, 2}, 2}},
              {{any({2, 12, 15, 15}), any({12, 1, 3, 3}), any({12})}, Conv2dAttrs{{1, 1}, {1, 1}, {1, 1}, 12}}};
    case Op::max_pool2d: return {{{distinct({2, 5, 17, 19})}, PoolAttrs{{3, 3}, {2, 2}, {1, 1}}}};
    case Op::avg_pool2d: return {{{any({2, 5, 17, 19})}, PoolAttrs{{3, 2}, {1, 2}, {1, 0}}}};
    case Op::matmul_grouped:
      return {{{any({150, 40}), any({5, 40, 70}), given({6}, {2, 40, 40, 41, 130, 149})}, GroupedAttrs{}},
              {{any({150, 40}), any({5, 70, 40}), given({6}, {0, 70, 71, 71, 71, 150})}, GroupedAttrs{true}},
              {{any({6, 300}), any({4, 300, 20}), given({5}, {0, 1, 1, 4, 6})}, GroupedAttrs{}},
              {{any({6, 300}), any({4, 20, 300}), given({5}, {0, 1, 1, 4, 6})}, GroupedAttrs{true}}};
    case Op::matmul_grouped_quantised: {  // in rows and in tiles
      const auto groups = [](std::int64_t columns, std::int64_t inner) {
        return within(0.001, 0.002, {4, columns, inner / quantised_group});
      };
      return {{{any({6, 416}), whole(-8, 7, {4, 90, 416}, DType::i4), groups(90, 416), groups(90, 416),
                given({5}, {1, 2, 2, 4, 5})}},
              {{any({70, 64}), whole(-127, 127, {4, 50, 64}, DType::i8), groups(50, 64), groups(50, 64),
                given({5}, {2, 40, 40, 41, 69})}}};
    }
    default: return {};
  }
}

class WholeOp : public ::testing::TestWithParam<Op> {};
INSTANTIATE_TEST_SUITE_P(Ops, WholeOp,
                         ::testing::Values(Op::embedding_grad, Op::scatter, Op::scatter_add, Op::cache_append,
                                           Op::cumsum, Op::cummax, Op::causal_conv1d, Op::linear_attention, Op::top_k,
                                           Op::argsort, Op::conv2d, Op::max_pool2d, Op::avg_pool2d, Op::matmul_grouped,
                                           Op::matmul_grouped_quantised),
                         [](const ::testing::TestParamInfo<Op>& param) { return std::string(name(param.param)); });

TEST_P(WholeOp, EqualsTheReferenceEveryTime) {
  const std::vector<Case> cases = large_cases(GetParam());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(describe(GetParam(), i, cases[i]));
    for (const Sample& sample : {forward(GetParam(), cases[i]), sample_of(GetParam(), cases[i])})
      for (const bool software : {true, false}) {
        const TensorMap computed = outputs_on(device(software), sample);
        expect_reference(sample, computed, form(software));
        expect_same_bits(computed, outputs_on(device(software), sample), form(software));
      }
  }
}

// Two threads may write the two halves of a word.
TEST_P(WholeOp, TakesSixteenBits) {
  const Case test_case = large_cases(GetParam()).front();
  for (const DType floats : {DType::f16, DType::bf16}) {
    const Sample sample = forward(GetParam(), test_case, floats);
    const auto wanted = run(sample.graph, {sample.graph.outputs[0].tensor}, sample.inputs);
    for (const bool software : {true, false})
      for (const bool f16 : {false, true})
        EXPECT_EQ(difference(to_value(outputs_on(device(software, f16), sample).at("out0")).data, wanted[0].data,
                             Tolerance{2e-2, 2e-2, 1e-2}),
                  std::nullopt)
            << name(floats) << " " << form(software) << (f16 ? " with f16" : "");
  }
}

// Values that an update does not change stay the same.
TEST(WholeOps, UpdateStateInPlace) {
  for (const bool software : {true, false}) {
    Session session(device(software));
    session.add_entry(
        "run", trace([] {
          const Tensor cache = state_input("cache", {1, 2, 3, 2});
          const Tensor sums = state_input("sums", {4});
          const Tensor positions = tensor_input("positions", {1, 1}, DType::i32);
          update(cache, cache_append(cache, tensor_input("values", {1, 2, 1, 2}), positions));
          update(sums, scatter_add(sums, tensor_input("indices", {3}, DType::i32), tensor_input("updates", {3}), 0));
        }));
    for (const std::int32_t position : {2, 0}) {
      const std::array<std::int32_t, 3> indices{3, position, 3};
      session.run("run", {{"positions", HostTensor({1, 1}, std::span(&position, 1))},
                          {"values", HostTensor({1, 2, 1, 2}, {1, 2, 3, 4})},
                          {"indices", HostTensor({3}, indices)},
                          {"updates", HostTensor({3}, {10, 20, 30})}});
    }
    EXPECT_EQ(to_value(session.download_state("cache")).data,
              (std::vector<double>{1, 2, 0, 0, 1, 2, 3, 4, 0, 0, 3, 4}));
    EXPECT_EQ(to_value(session.download_state("sums")).data, (std::vector<double>{20, 0, 20, 80}));
  }
}

}  // namespace
}  // namespace jerboa::test::whole_test
