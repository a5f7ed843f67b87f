#include <algorithm>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli/command.h"

// What `jerboa bench` prints.
namespace jerboa::test::bench_test {
namespace {

using Json = nlohmann::json;

Json json_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bench");
  arguments.insert(arguments.end(), {"--turns", "1", "--json"});
  const Outcome outcome = run_command(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out);
}

void expect_profile(const Json& kernels, double operations) {
  ASSERT_FALSE(kernels.empty());
  double share = 0, computed = 0;
  for (const Json& kernel : kernels) {
    EXPECT_FALSE(kernel.at("kernel").get<std::string>().empty());
    EXPECT_GE(kernel.at("calls"), 1);
    share += kernel.at("share").get<double>();
    EXPECT_GT(kernel.at("terabytes_per_second"), 0) << kernel;
    computed += kernel.value("teraflops", 0.0) * 1e12 * kernel.at("milliseconds").get<double>() * 1e-3;
  }
  EXPECT_NEAR(share, 1, 1e-6);
  EXPECT_NEAR(computed, operations, operations * 1e-6);
}

TEST(Bench, PutsProfilesIntoJson) {
  const Json rows = json_of({"matmul16x32x16", "mlp", "--device", "cpu", "--seconds", "0.01", "--profile"});
  ASSERT_EQ(rows.size(), 2u);
  expect_profile(rows[0].at("profile").at("kernels"), 2.0 * 16 * 32 * 16);
  EXPECT_TRUE(rows[0].at("profile").at("ceilings").is_object()) << "those of a CPU are not measured";
  EXPECT_EQ(rows[1].at("profile").at("kernels")[0].at("kernel").get<std::string>().substr(0, 6), "matmul");
  EXPECT_GT(rows[1].at("profile").at("memory").at("persistent_bytes"), 0);
  EXPECT_EQ(rows[1].at("profile").at("memory").at("tensors")[0].at("bytes"), 128 * 512 * 4);
  EXPECT_FALSE(json_of({"matmul16x32x16", "--device", "cpu", "--seconds", "0.01"})[0].contains("profile"));
}

TEST(Bench, PutsProfilesOfLanguageModelsIntoJson) {
  const Json row = json_of({"llm", "--model", "llama8x512", "--weights", "int4", "--device", "cpu", "--prompt", "4",
                            "--tokens", "2", "--profile"})[0];
  for (const char* entry : {"prefill", "decode"}) {
    double share = 0;
    for (const Json& kernel : row.at("profile").at(entry)) share += kernel.at("share").get<double>();
    EXPECT_NEAR(share, 1, 1e-6) << entry;
  }
  EXPECT_TRUE(row.at("profile").contains("ceilings"));
}

// The same whatever is measured beside them.
TEST(Bench, PutsTokensOfLanguageModelsIntoJson) {
  const std::vector<std::string> arguments{"llm",      "--model", "llama8x512", "--weights", "int4",
                                           "--device", "cpu",     "--prompt",   "4",         "--tokens"};
  const auto tokens_of = [&](const std::string& count) {
    std::vector<std::string> all = arguments;
    all.push_back(count);
    return json_of(all)[0].at("tokens").get<std::string>();
  };
  const std::string three = tokens_of("3"), two = tokens_of("2");
  EXPECT_EQ(std::count(three.begin(), three.end(), ' '), 3) << three;
  EXPECT_EQ(three.substr(0, three.rfind(' ')), two);
}

}  // namespace
}  // namespace jerboa::test::bench_test
