#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/ops/ops.h>

#include "cli/chat_model.h"
#include "cli/command.h"

// `jerboa inspect` on each kind of file.
namespace jerboa::test::inspect_test {
namespace {

using Json = nlohmann::json;

class InspectTest : public testing::Test {
 protected:
  ChatModel model_{256};
  TempFolder folder_;
};

TEST_F(InspectTest, DescribesAModel) {
  const Outcome outcome = run_command({"inspect", model_.name()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* line :
       {"kind             model\n", "family           llama\n", "layers           2\n", "weights in int4"})
    EXPECT_NE(outcome.out.find(line), std::string::npos) << outcome.out;
}

TEST_F(InspectTest, ComputesStatistics) {
  const std::vector<float> values{-1, 0, 3, 2};
  const std::vector<TensorView> tensors{view_of("w", {2, 2}, std::span<const float>(values))};
  write_safetensors(folder_ / "w.safetensors", tensors);
  const Outcome outcome = run_command({"inspect", (folder_ / "w.safetensors").string(), "--statistics", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto json = Json::parse(outcome.out);
  EXPECT_EQ(json["kind"], "checkpoint");
  const auto& found = json["tensors"][0]["statistics"];
  EXPECT_EQ(found["min"], -1);
  EXPECT_EQ(found["max"], 3);
  EXPECT_EQ(found["mean"], 1);
  EXPECT_EQ(found["zeros"], 1);
  EXPECT_NEAR(found["std"].get<double>(), std::sqrt(2.5), 1e-9);
}

TEST_F(InspectTest, PrintsTheGraph) {
  const auto graph = [&](const std::string& form) {
    return run_command({"inspect", model_.name(), "--graph", form}).out;
  };
  EXPECT_NE(graph("listing").find("rms_norm"), std::string::npos);
  EXPECT_EQ(graph("dot").find("digraph"), 0u);
  EXPECT_GT(from_json(graph("json")).nodes.size(), 20u);
}

TEST_F(InspectTest, DescribesAProgram) {
  const Graph graph = trace([] {
    const Tensor x = tensor_input("x", {4}, DType::f32);
    output("y", exp(x) + 1);
  });
  create_session({{"run", graph}}, {.device = Device::cpu(1)}).save_program(folder_ / "small.jerboa");
  const Outcome outcome = run_command({"inspect", (folder_ / "small.jerboa").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("entry run        1 kernels"), std::string::npos) << outcome.out;
}

TEST_F(InspectTest, WritesOnePage) {
  const std::string page = (folder_ / "page.html").string();
  const Outcome outcome = run_command({"inspect", model_.name(), "--html", page, "--statistics", "--profile", "cpu"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string html = read_text(page);
  for (const char* part : {"model.layers.1", "@compute", "Time per kernel", "<svg", "Weights by precision", "rms_norm"})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  for (const char* outside : {"http://", "https://", "<script", "<link", "url("})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
}

}  // namespace
}  // namespace jerboa::test::inspect_test
