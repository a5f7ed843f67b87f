#include <filesystem>
#include <gtest/gtest.h>

#include "cli/command.h"
#include "support/temp_folder.h"

// `jerboa bench --against torch` with programs in place of Python, since PyTorch may be missing.
namespace jerboa::test::torch_peer_test {
namespace {

class TorchPeer : public testing::Test {
 protected:
  // A Python that answers whatever it is asked, at a path with a space.
  Outcome bench(const std::string& script) const {
    const std::filesystem::path python = folder_ / "a python";
    write_text(python, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    return run_command({"bench", "mlp", "--device", "cpu", "--against", "torch", "--seconds", "0.01", "--turns", "1"},
                       {.variables = {{"JERBOA_PYTHON", python.string()}}});
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
