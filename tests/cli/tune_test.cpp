#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/chat_model.h"
#include "cli/command.h"
#include "support/temp_folder.h"

// `jerboa tune` on any available adapter. Without one the tests fail and say why.
namespace jerboa::test::tune_test {
namespace {

class Tune : public testing::Test {
 protected:
  Outcome tune(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "tune");
    arguments.insert(arguments.end(), {"--seconds", "0.001"});
    return run_command(arguments, {.variables = {{"JERBOA_CACHE", (folder_ / "cache").string()}}});
  }
  // The file that devices look for by default; empty if it does not exist.
  std::filesystem::path default_file() const {
    for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache"))
      if (file.path().filename().string().starts_with("tuned-")) return file.path();
    return {};
  }

  TempFolder folder_;
};

TEST_F(Tune, WritesTheFileThatDevicesLoad) {
  const Outcome outcome = tune({"--shapes", "matmul12x32x24_weights", "matmul8x32x12"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("12x32x24 f32, transposed b "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("8x32x12 f32 "), std::string::npos) << outcome.out;
  const std::filesystem::path file = default_file();
  ASSERT_FALSE(file.empty());
  EXPECT_NE(outcome.err.find(file.string() + ": written"), std::string::npos) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(file)).at("jerboa_tuned_forms"), 2);
  // Every WebGPU device loads it now, and goes without what it cannot use.
  const auto bench = [&] {
    return run_command({"bench", "matmul8", "--device", "webgpu", "--seconds", "0.001", "--turns", "1"},
                       {.variables = {{"JERBOA_CACHE", (folder_ / "cache").string()}}});
  };
  const Outcome intact = bench();
  EXPECT_EQ(intact.code, 0);
  EXPECT_EQ(intact.err.find(file.string()), std::string::npos) << intact.err;
  nlohmann::json unfit = nlohmann::json::parse(read_text(file));
  unfit["kernels"] = {
      {{"kind", "product"},
       {"shape",
        {{"rows", 64},
         {"inner", 64},
         {"columns", 64},
         {"a", "f32"},
         {"b", "f32"},
         {"mins", false},
         {"transpose_a", false},
         {"transpose_b", false},
         {"products", 1}}},
       {"form", {{"kind", "quantised"}, {"team", 32}, {"teams", 1}, {"steps", 1}, {"results", 4}, {"halves", false}}},
       {"seconds", 1e-6},
       {"untuned_seconds", 2e-6}}};
  write_text(file, unfit.dump());
  const Outcome ignored = bench();
  EXPECT_EQ(ignored.code, 0);
  EXPECT_NE(ignored.err.find(file.string() + ": 1 of 1 kernels are ignored"), std::string::npos) << ignored.err;
  write_text(file, "{");
  const Outcome damaged = bench();
  EXPECT_EQ(damaged.code, 0);
  EXPECT_NE(damaged.err.find("jerboa: ignored: " + file.string() + ": not valid JSON"), std::string::npos)
      << damaged.err;
  EXPECT_EQ(tune({"--shapes", "matmul8x32x12"}).code, 0);
  EXPECT_EQ(bench().err.find("ignored"), std::string::npos);
}

TEST_F(Tune, PrintsJson) {
  const Outcome outcome = tune({"--shapes", "matmul8x32x12", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto row = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(row.at("kernel"), "8x32x12 f32");
  EXPECT_GT(row.at("untuned_seconds"), 0);
  EXPECT_LE(row.at("seconds"), row.at("untuned_seconds"));
}

TEST_F(Tune, WritesToTheGivenFile) {
  const std::string file = (folder_ / "some.json").string();
  const Outcome outcome = tune({"--shapes", "matmul8x32x12", "--output", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("if JERBOA_TUNED names it"), std::string::npos) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(read_text(file)).at("jerboa_tuned_forms"), 2);
  EXPECT_TRUE(default_file().empty());
}

}  // namespace
}  // namespace jerboa::test::tune_test
