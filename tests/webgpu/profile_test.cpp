#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/regression.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Times of kernels, as a table and as a trace.
namespace jerboa::test {
namespace {

class Profile : public testing::TestWithParam<const char*> {};  // the device
INSTANTIATE_TEST_SUITE_P(Devices, Profile, testing::Values("webgpu", "cpu"));

TEST_P(Profile, HasEveryExecutionOfEveryKernelInOrder) {
  Session session(Device::by_name(GetParam()));
  session.add_entry("step", regression_step());
  session.step(regression_batch());
  EXPECT_TRUE(session.profile("step").empty());
  session.set_profiling("step", true);
  constexpr std::size_t runs = 3;
  for (std::size_t i = 0; i < runs; ++i) session.step(regression_batch());
  const auto times = session.profile("step");
  EXPECT_EQ(times.size(), runs * static_cast<std::size_t>(session.kernel_count("step")));
  double end = 0;
  for (const KernelTime& time : times) {
    EXPECT_FALSE(time.kernel.empty());
    EXPECT_GE(time.seconds, 0);
    EXPECT_LT(time.seconds, 60);
    EXPECT_GE(time.start, 0);
    end = std::max(end, time.start + time.seconds);
  }
  EXPECT_GT(end, 0);
  EXPECT_GE(times.back().start, times.front().start + times.front().seconds);
  EXPECT_NE(print(times).find(times.front().kernel), std::string::npos);
  session.set_profiling("step", false);
  session.step(regression_batch());
  EXPECT_TRUE(session.profile("step").empty());
}

// A product of 24×40 and 40×56, with its operands in f32, after a loop that multiplies nothing.
TEST_P(Profile, CountsTheOperationsOfProductsAndTheBytesOfAll) {
  Session session(Device::by_name(GetParam()));
  session.add_entry("run", trace([] {
                      const Tensor a = tensor_input("a", {24, 40});
                      output("y", matmul(capture(exp(a), "e"), param_input("b", {40, 56})));
                    }));
  session.set_profiling("run", true);
  session.run("run", {{"a", HostTensor(DType::f32, {24, 40})}}).get("y");
  double operations = 0;
  for (const KernelTime& time : session.profile("run")) {
    operations += time.operations;
    EXPECT_EQ(time.bytes, 4 * (24 * 40 + (time.operations > 0 ? 40 * 56 + 24 * 56 : 24 * 40)));
  }
  EXPECT_EQ(operations, 2 * 24 * 40 * 56);
}

TEST_P(Profile, DoesNotChangeResults) {
  const auto train = [](bool profiled) {
    Session session(Device::by_name(GetParam()), {.seed = 1});
    session.add_entry("step", regression_step(true));
    session.set_profiling("step", profiled);
    for (int i = 0; i < 3; ++i) session.step(regression_batch());
    return everything(session);
  };
  EXPECT_TRUE(train(true) == train(false));
}

TEST_P(Profile, IsWrittenAsATrace) {
  const TempFolder folder;
  Session session(Device::by_name(GetParam()));
  session.add_entry("step", regression_step());
  session.set_profiling("step", true);
  session.step(regression_batch());
  const auto times = session.profile("step");
  write_trace(times, folder / "trace.json");
  const auto trace = nlohmann::json::parse(read_text(folder / "trace.json"));
  std::size_t number = 0;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_TRUE(event.at("pid").is_number());
    if (event.at("ph") == "M") continue;
    ASSERT_LT(number, times.size());
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_TRUE(event.at("tid").is_number());
    EXPECT_EQ(event.at("name"), times[number].label);
    EXPECT_EQ(event.at("args").at("kernel"), times[number].kernel);
    EXPECT_NEAR(event.at("ts").get<double>(), times[number].start * 1e6, 1e-6);
    EXPECT_NEAR(event.at("dur").get<double>(), times[number].seconds * 1e6, 1e-6);
    ++number;
  }
  EXPECT_EQ(number, times.size());
}

TEST(Trace, HoldsAnyNameAndReplacesTheFileWhole) {
  const TempFolder folder;
  const std::vector<KernelTime> times{{"a \"quoted\"\n\xff name", "loop", 1e-6, 2e-6}};
  write_trace(times, folder / "trace.json");
  const auto event = nlohmann::json::parse(read_text(folder / "trace.json")).at("traceEvents").back();
  EXPECT_EQ(event.at("name"), "a \"quoted\"\n\xef\xbf\xbd name");
  EXPECT_NEAR(event.at("ts").get<double>(), 2, 1e-9);
  write_trace({}, folder / "trace.json");
  const auto empty = nlohmann::json::parse(read_text(folder / "trace.json"));
  for (const auto& left : empty.at("traceEvents")) EXPECT_EQ(left.at("ph"), "M");
  expect_error<FileError>([&] { write_trace(times, folder / "missing" / "trace.json"); }, "trace.json");
}

}  // namespace
}  // namespace jerboa::test
