#include <gtest/gtest.h>
#include <thread>

#include <jerboa/compile/graphs.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/session.h>

// Shaders that are compiled while other threads use the device.
namespace jerboa::test {
namespace {

// Kernels that differ from number to number.
Graph numbered(int number) {
  return trace([&] {
    Tensor x = matmul(tensor_input("x", {4, 4}), param_input("w", {4, 4}));
    for (int i = 0; i <= number; ++i) x = exp(x * 0.1) + sum(x, {-1}, true) * (0.01 * (number + 1));
    output("y", x);
  });
}

HostTensor numbers(const Sizes& sizes, double factor) {
  HostTensor values(DType::f32, sizes);
  for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, factor * static_cast<double>(i % 13 - 6));
  return values;
}

TEST(WebGpuPrepare, CompilesOnSeveralThreadsWhileOthersUploadAndRun) {
  constexpr int count = 6;
  const TensorMap inputs{{"x", numbers({4, 4}, 0.1)}};
  const HostTensor w = numbers({4, 4}, 0.2);
  Session session(Device::webgpu());
  session.add_entry("first", numbered(0));
  std::vector<PreparedEntry> entries[2];
  std::vector<std::thread> threads;
  for (std::vector<PreparedEntry>& prepared : entries)  // both compile all of them
    threads.emplace_back([&] {
      for (int i = 1; i < count; ++i) prepared.push_back(session.prepare_entry(std::to_string(i), numbered(i)));
    });
  for (int i = 0; i < 50; ++i) {
    session.upload_param("w", w.bytes());
    session.run("first", inputs).get("y");
  }
  for (std::thread& thread : threads) thread.join();
  for (const PreparedEntry& entry : entries[0]) session.add_entry(entry);
  for (int i = 1; i < count; ++i) {
    Session alone(Device::webgpu());
    alone.add_entry("y", numbered(i));
    alone.upload_param("w", w.bytes());
    EXPECT_EQ(session.run(std::to_string(i), inputs).get("y"), alone.run("y", inputs).get("y")) << i;
  }
}

}  // namespace
}  // namespace jerboa::test
