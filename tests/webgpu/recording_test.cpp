#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

// Commands are recorded ahead for a run like the last one: a different run must not use them.
namespace jerboa::test {
namespace {

const Dim length = Dim::symbol("length", 64);

// A state that counts runs, a sum that depends on the length, and a value that can be captured.
Graph counting() {
  return trace([] {
    const Tensor x = tensor_input("x", {length}), count = state_input("count", {});
    update(count, count + 1);
    output("total", sum(capture(x * 2, "doubled")) + count);
  });
}

class RecordedAhead : public ::testing::Test {
 protected:
  RecordedAhead() { session.add_entry("run", counting()); }

  void expect(std::int64_t size, bool captured) {
    HostTensor x(DType::f32, {size});
    for (std::int64_t i = 0; i < size; ++i) x.f32()[static_cast<std::size_t>(i)] = static_cast<float>(runs + i);
    RunOptions options;
    if (captured) options.captures = {"doubled"};
    const Result result = session.run("run", {{"x", x}}, options);
    double total = runs;
    for (std::int64_t i = 0; i < size; ++i) total += 2.0 * static_cast<double>(runs + i);
    EXPECT_EQ(result.get("total").number(0), total) << "run " << runs;
    EXPECT_EQ(result.has("doubled"), captured);
    if (captured) {
      ASSERT_EQ(result.get("doubled").size(), size);
      EXPECT_EQ(result.get("doubled").number(size - 1), 2.0 * static_cast<double>(runs + size - 1));
    }
    ++runs;
  }

  Session session{Device::webgpu()};
  int runs = 0;
};

TEST_F(RecordedAhead, ServesRunsThatRepeatEachOther) {
  for (int i = 0; i < 5; ++i) expect(7, false);
}

TEST_F(RecordedAhead, GivesWayToOtherLengths) {
  for (const std::int64_t size : {3, 3, 3, 40, 40, 3, 64, 64, 64, 1}) expect(size, false);
}

TEST_F(RecordedAhead, GivesWayToOtherCaptures) {
  for (const bool captured : {false, false, false, true, true, true, false, true}) expect(5, captured);
}

TEST_F(RecordedAhead, KeepsResultsThatAreReadLate) {
  const auto run = [&](float value) {
    HostTensor x(DType::f32, {1});
    x.f32()[0] = value;
    return session.run("run", {{"x", x}});
  };
  std::vector<Result> results;
  for (int i = 0; i < 6; ++i) results.push_back(run(static_cast<float>(10 * i)));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)].get("total").number(0), 20 * i + i);
}

TEST_F(RecordedAhead, StopsWhileKernelsAreTimed) {
  for (int i = 0; i < 3; ++i) expect(4, false);
  session.set_profiling("run", true);
  for (int i = 0; i < 3; ++i) expect(4, false);
  EXPECT_FALSE(session.profile("run").empty());
  session.set_profiling("run", false);
  for (int i = 0; i < 3; ++i) expect(4, false);
}

}  // namespace
}  // namespace jerboa::test
