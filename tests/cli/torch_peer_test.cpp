#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "support/temp_folder.h"

// `jerboa bench --against torch` with programs in place of Python, since PyTorch may be missing.
namespace jerboa::test::torch_peer_test {
namespace {

class TorchPeer : public testing::Test {
 protected:
  // A Python that answers whatever it is asked, at a path with a space.
  Outcome bench(const std::string& script, std::vector<std::string> arguments = {"mlp", "--device", "cpu"}) const {
    const std::filesystem::path python = folder_ / "a python";
    write_text(python, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    arguments.insert(arguments.begin(), {"bench", "--against", "torch", "--seconds", "0.01", "--turns", "1"});
    return run_command(arguments, {.variables = {{"JERBOA_PYTHON", python.string()}}});
  }

  TempFolder folder_;
};

TEST_F(TorchPeer, IsComparedWith) {
  const Outcome outcome = bench("echo 1000");  // seconds
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::size_t peer = outcome.out.find("torch cpu");
  ASSERT_NE(peer, std::string::npos) << outcome.out;
  double milliseconds = 0, times = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + peer, "torch cpu %lf ms %lfx", &milliseconds, &times), 2) << outcome.out;
  EXPECT_EQ(milliseconds, 1e6);
  double jerboa_time = 0;
  ASSERT_EQ(std::sscanf(outcome.out.c_str() + outcome.out.find("mlp"), "mlp %lf ms", &jerboa_time), 1) << outcome.out;
  EXPECT_NEAR(times * jerboa_time, milliseconds, 0.01 * milliseconds);  // as printed, in thousandths of a millisecond
}

TEST_F(TorchPeer, ReportsTheClockOfAGpu) {
  const Outcome outcome = bench("echo 1000; echo clock 0.75",
                                {"matmul16x16x16", "--device", "webgpu", "--torch-precisions", "tf32", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto row = nlohmann::json::parse(outcome.out)[0];
  EXPECT_EQ(row["torch_eager_tf32_seconds"], 1000);
  EXPECT_EQ(row["torch_eager_tf32_clock"], 0.75);
}

// In the place of PyTorch: products that take less time from one to the next, like those of a GPU that wakes up.
constexpr const char* waking_torch = R"(import time
runs = 0
class Matrix:
    def __init__(self, sleeps): self.sleeps = sleeps
    def __matmul__(self, other):
        global runs
        if self.sleeps: time.sleep(0.001 + 0.2 * 0.7 ** runs)
        runs += self.sleeps
        return self
    def __getitem__(self, index): return self
    def item(self): return 0
def randn(*sizes, device=None, dtype=None): return Matrix(device is not None)  # not those that look for a fast BLAS
def nothing(*values): pass
set_num_threads = manual_seed = set_default_dtype = nothing
float32 = float16 = bfloat16 = None
class Anything: pass
backends, optim = Anything(), Anything()
backends.cuda, backends.cudnn = Anything(), Anything()
backends.cuda.matmul = Anything()
optim.Adam = optim.AdamW = None
)";

TEST_F(TorchPeer, IsMeasuredOnceItNoLongerGetsFaster) {
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "there is no python3";
  std::filesystem::create_directories(folder_ / "torch" / "nn");
  write_text(folder_ / "torch" / "__init__.py", waking_torch);
  write_text(folder_ / "torch" / "nn" / "__init__.py", "class Module: pass\n");
  write_text(folder_ / "torch" / "nn" / "functional.py", "");
  const Outcome outcome =
      run_command({"bench", "matmul16x16x16", "--device", "cpu", "--threads", "1", "--against", "torch", "--seconds",
                   "0.01", "--turns", "1", "--json"},
                  {.variables = {{"JERBOA_PYTHON", "python3"}, {"PYTHONPATH", folder_.path().string()}}});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(nlohmann::json::parse(outcome.out)[0]["torch_cpu_seconds"].get<double>(), 0.02) << outcome.out;
}

TEST_F(TorchPeer, IsRefusedIfItHasNoFastBlas) {
  const Outcome outcome = bench("echo slow 1.0");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("PyTorch's own matrix product reaches only 1.0 GFLOP/s per thread"), std::string::npos)
      << outcome.err;
}

TEST_F(TorchPeer, IsNamedIfItDoesNotRun) {
  const Outcome outcome = bench("exit 3");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("PyTorch (cpu, f32) did not run (exit status 3)"), std::string::npos) << outcome.err;
}

TEST_F(TorchPeer, IsNotComparedWithIfItFails) {
  const std::string half = "echo 1000; echo 1000; ";
  const Outcome exits = bench(half + "exit 1");
  EXPECT_EQ(exits.code, 1) << exits.out;
  EXPECT_NE(exits.err.find("(exit status 1)"), std::string::npos) << exits.err;
  for (const std::string& before : {std::string(), half}) {
    const Outcome dies = bench(before + "kill -ILL $$");
    EXPECT_EQ(dies.code, 1) << dies.out;
    EXPECT_NE(dies.err.find("PyTorch (cpu, f32) was ended by signal 4 (Illegal instruction)"), std::string::npos)
        << dies.err;
    EXPECT_EQ(dies.err.find("python3-torch"), std::string::npos) << dies.err;
  }
}

}  // namespace
}  // namespace jerboa::test::torch_peer_test
