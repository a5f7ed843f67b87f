#pragma once

#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/random.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/wgsl/emit_wgsl.h>

#include "wgsl/shared_device.h"

// Shared by the tests of kernels that compute other kernels along the way.
namespace jerboa::test {

// The kernels for GPUs, whatever the driver.
inline Target gpu_target(int subgroup_size = 0) {
  Target target = Target::webgpu_default();
  target.max_bindings = 16;
  target.subgroup_size = subgroup_size;
  return target;
}

// With subgroups of the size that the device has, up to 32, or without.
inline const Device& gpu(int subgroup_size) {
  return shared_device(subgroup_size, [](int size) { return WebGpuOptions{.target = gpu_target(size)}; });
}

inline std::size_t dispatches(const Graph& graph, const Target& target = gpu_target()) {
  Program program = lower(graph, target);
  emit_wgsl(program, target);
  return program.gpu.steps.size();
}

inline HostTensor random_values(DType dtype, const Sizes& shape, std::uint64_t seed) {
  HostTensor values(dtype, shape);
  SplitMix random(seed);
  const double spread = bits(dtype) < 16 ? 14 : 1;
  for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, (random.uniform() - 0.5) * spread);
  return values;
}

// Different floats for each run, so that leftover values of an earlier run are noticed.
inline TensorMap scaled(const TensorMap& inputs, int run) {
  TensorMap all = inputs;
  for (auto& [name, values] : all)
    for (std::int64_t i = 0; is_float(values.dtype()) && i < values.size(); ++i)
      values.set_number(i, values.number(i) / (1 + run));
  return all;
}

// Runs an entry several times, for graphs that update states, on both devices from the same random parameters.
inline void expect_reference_on(const Device& device, const Graph& graph, const TensorMap& inputs, int runs,
                                double tolerance) {
  Session ours(device), wanted(Device::reference());
  std::uint64_t seed = 1;
  for (Session* session : {&ours, &wanted}) session->add_entry("run", graph);
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    const HostTensor values = random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++);
    for (Session* session : {&ours, &wanted}) session->upload_param(tensor.name, values.bytes());
  }
  for (int run = 0; run < runs; ++run) {
    const TensorMap given = scaled(inputs, run);
    const Result result = ours.run("run", given), reference = wanted.run("run", given);
    for (const std::string& name : result.names()) {
      const HostTensor computed = result.get(name), expected = reference.get(name);
      ASSERT_EQ(computed.shape(), expected.shape());
      for (std::int64_t i = 0; i < expected.size(); ++i)
        ASSERT_NEAR(computed.number(i), expected.number(i), tolerance * (1 + std::abs(expected.number(i))))
            << name << " " << i << " of run " << run;
    }
  }
}

inline void expect_reference(const Graph& graph, const TensorMap& inputs, int runs = 1, double tolerance = 2e-5) {
  for (const int subgroup_size : {0, 32}) {
    SCOPED_TRACE(subgroup_size);
    expect_reference_on(gpu(subgroup_size), graph, inputs, runs, tolerance);
  }
}

// Without subgroups, drivers on the CPU take long to compile attention, which then exchanges values behind barriers.
inline void expect_reference_with_subgroups(const Graph& graph, const TensorMap& inputs, int runs,
                                            double tolerance = 2e-5) {
  expect_reference_on(gpu(32), graph, inputs, runs, tolerance);
}

inline Tensor linear(const std::string& name, const Tensor& x, std::int64_t out, DType dtype) {
  const Tensor weight = param_input(name, {out, x.dim(-1)}, {.trainable = false, .dtype = dtype});
  if (dtype == DType::i8 || dtype == DType::i4) {
    const Dim groups(x.dim(-1).value() / quantised_group);
    return matmul_quantised(x, weight,
                            param_input(name + ".scales", {out, groups}, {.trainable = false, .dtype = DType::f16}));
  }
  return matmul(x, cast(weight, DType::f32), {.transpose_b = true});
}

inline Tensor norm(const std::string& name, const Tensor& x) {
  return rms_norm(x, param_input(name, {x.dim(-1)}), 1e-5);
}

inline TensorMap inputs_of(const Graph& graph) {
  TensorMap inputs;
  std::uint64_t seed = 100;
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::input && is_float(tensor.type.dtype))
      inputs.emplace(tensor.name, random_values(tensor.type.dtype, evaluate(tensor.type.shape, {}), seed++));
  return inputs;
}

}  // namespace jerboa::test
