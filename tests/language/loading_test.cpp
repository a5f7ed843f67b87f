#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <thread>

#include <jerboa/base/error.h>

#include "language/model_folder.h"
#include "support/expect_error.h"

// Programs are compiled while weights are read.
namespace jerboa::loading_test {
namespace {

using test::expect_error;
using test::ModelFolder;

// The CPU, with a callback for every program that is compiled ahead.
class WatchedBackend final : public Backend {
 public:
  explicit WatchedBackend(std::function<void()> before) : before_(std::move(before)) {}
  std::string name() const override { return inner_.name(); }
  std::shared_ptr<DeviceTensor> allocate(DType dtype, const Sizes& sizes, const std::string& name) override {
    return inner_.backend().allocate(dtype, sizes, name);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const FindStorage& storage) override {
    return inner_.backend().compile(graph, storage);
  }
  std::shared_ptr<const Program> prepare(const Graph& graph) override {
    before_();
    return inner_.backend().prepare(graph);
  }
  std::unique_ptr<Executable> load(const Program& program, const FindStorage& storage) override {
    return inner_.backend().load(program, storage);
  }

 private:
  Device inner_ = Device::cpu(2);
  std::function<void()> before_;
};

Device watched(std::function<void()> before) { return Device(std::make_shared<WatchedBackend>(std::move(before))); }

void sleep(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

TEST(Loading, CompilesOnAThreadOfItsOwn) {
  const ModelFolder folder("llama");
  std::atomic<int> prepared = 0;
  const auto thread = std::this_thread::get_id();
  LanguageModel model = folder.open({.device = watched([&] {
                                       ++prepared;
                                       EXPECT_NE(std::this_thread::get_id(), thread);
                                     })});
  EXPECT_EQ(prepared, 2);  // a step of decoding, and one of a prompt
  EXPECT_EQ(model.continue_tokens(folder.prompt(), folder.as_golden()).tokens, folder.continuation());
}

TEST(Loading, SaysHowLongItsPhasesTook) {
  const LanguageModel model = ModelFolder("llama").open({.device = watched([] { sleep(20); })});
  const language::LoadSeconds& seconds = model.load_seconds();
  const double phases = seconds.opening + seconds.planning + seconds.weights + seconds.finishing;
  EXPECT_LE(phases, seconds.whole);
  EXPECT_GT(phases, 0.8 * seconds.whole);
  EXPECT_GE(seconds.compiling, 0.04);
  EXPECT_GE(seconds.planning + seconds.weights + seconds.finishing, seconds.compiling);
}

TEST(Loading, ReportsCompileErrors) {
  const ModelFolder folder("llama");
  std::atomic<int> read = 0;
  LanguageModelOptions options;
  options.device = watched([] { throw DeviceError("nothing compiles"); });
  expect_error<DeviceError>([&] { folder.open(options); }, "nothing compiles");
  // Without reading all weights first.
  options.on_weights = [&](std::int64_t, std::int64_t) {
    ++read;
    sleep(200);
  };
  expect_error<DeviceError>([&] { folder.open(options); }, "nothing compiles");
  EXPECT_LE(read, 2);
}

TEST(Loading, EndsCompilingWhenWeightsCannotBeRead) {
  const ModelFolder folder("llama");
  std::atomic<int> running = 0, begun = 0;
  LanguageModelOptions options;
  options.device = watched([&] {
    ++begun;
    ++running;
    sleep(100);
    --running;
  });
  options.on_weights = [&](std::int64_t, std::int64_t) {
    while (begun == 0) sleep(1);
    throw FileError("no more weights");
  };
  expect_error<FileError>([&] { folder.open(options); }, "no more weights");
  EXPECT_EQ(running, 0);
  EXPECT_EQ(begun, 1);
}

}  // namespace
}  // namespace jerboa::loading_test
