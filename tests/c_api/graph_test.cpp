#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <string>

#include <jerboa/c_api/graph.h>
#include <jerboa/compile/graphs.h>
#include <jerboa/ops/ops.h>

#include "c_api/buffers.h"

// The C interface builds the same graphs as the C++ functions.
namespace jerboa::c_api_test::graph_test {
namespace {

using Json = nlohmann::json;

class Builder {
 public:
  explicit Builder(const std::string& options = "") {
    EXPECT_EQ(jerboa_graph_create(options.data(), options.size(), &graph_), JERBOA_OK) << jerboa_last_error();
  }
  ~Builder() { jerboa_graph_free(graph_); }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  jerboa_status status(const Json& call, Json* reply = nullptr) {
    const std::string text = call.is_string() ? call.get<std::string>() : call.dump();
    jerboa_buffer* buffer = nullptr;
    const jerboa_status status = jerboa_graph_call(graph_, text.data(), text.size(), &buffer);
    if (status == JERBOA_OK && reply != nullptr) *reply = Json::parse(taken(buffer));
    return status;
  }
  Json call(const std::string& function, const Json& operands, const Json& options = Json::object()) {
    Json reply;
    EXPECT_EQ(status({{"function", function}, {"operands", operands}, {"options", options}}, &reply), JERBOA_OK)
        << function << ": " << jerboa_last_error();
    return reply.value("tensors", Json::array());
  }
  int one(const std::string& function, const Json& operands, const Json& options = Json::object()) {
    const Json results = call(function, operands, options);
    return results.size() == 1 ? results[0].at("id").get<int>() : -1;
  }

  template <class Function>
  Json json(Function function, const std::string& options) {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(function(graph_, options.data(), options.size(), &buffer), JERBOA_OK) << jerboa_last_error();
    return Json::parse(taken(buffer));
  }
  jerboa_graph* get() const { return graph_; }

 private:
  jerboa_graph* graph_ = nullptr;
};

// Without the lines of user code.
Json without_sites(Json graph) {
  for (Json& node : graph.at("nodes")) node.erase("site");
  return graph;
}

TEST(GraphApi, BuildsTheTrainingStepsOfTheCppLibrary) {
  const auto loss = [](const Inputs& in) {
    const Tensor up = param_input("up", {24, 6}, {.init = Init::normal(0.4)});
    const Tensor hidden = tanh(matmul(in["x"], up, {.transpose_b = true}));
    const Tensor mask = random_uniform(hidden.shape()) >= 0.25, scaled = hidden / 0.75;
    const Tensor kept = where(mask, scaled, 0);
    const Tensor down = param_input("down", {3, 24}, {.init = Init::uniform(0.3), .decay = false});
    return mean(square(matmul(kept, down, {.transpose_b = true}) - in["y"]));
  };
  const Graph wanted =
      training_graph({{"x", {10, 6}}, {"y", {10, 3}}}, loss,
                     AdamW{.lr = warmup_cosine(1e-2, 5, 50, 1e-3), .weight_decay = 0.1, .clip_norm = 1});

  Builder builder(R"({"training": true})");
  const int x = builder.one("input", {}, {{"name", "x"}, {"shape", {10, 6}}});
  const int y = builder.one("input", {}, {{"name", "y"}, {"shape", {10, 3}}});
  const Json normal{{"kind", "normal"}, {"width", 0.4}}, uniform{{"kind", "uniform"}, {"width", 0.3}};
  const int up = builder.one("parameter", {}, {{"name", "up"}, {"shape", {24, 6}}, {"init", normal}});
  EXPECT_EQ(builder.one("parameter", {}, {{"name", "up"}, {"shape", {24, 6}}, {"init", normal}}), up);
  const int hidden = builder.one("tanh", {builder.one("matmul", {x, up}, {{"transpose_b", true}})});
  const int random = builder.one("random_uniform", {}, {{"shape", {10, 24}}});
  const int mask = builder.one("greater_equal", {random, {{"number", 0.25}}});
  const int scaled = builder.one("div", {hidden, {{"number", 0.75}}});
  const int kept = builder.one("where", {mask, scaled, {{"number", 0}}});
  const int down =
      builder.one("parameter", {}, {{"name", "down"}, {"shape", {3, 24}}, {"init", uniform}, {"decay", false}});
  const int product = builder.one("matmul", {kept, down}, {{"transpose_b", true}});
  const int squared = builder.one("square", {builder.one("sub", {product, y})});
  builder.call("output", {builder.one("mean", {squared})}, {{"name", "loss"}});
  const Json graph = builder.json(jerboa_graph_training, R"({"optimizer": {"kind": "adamw", "weight_decay": 0.1,
      "clip_norm": 1, "lr": {"schedule": "warmup_cosine", "peak": 0.01, "warmup": 5, "total": 50, "floor": 0.001}}})");
  EXPECT_EQ(without_sites(graph), without_sites(Json::parse(to_json(wanted))));
}

TEST(GraphApi, RepliesWithTypesOverSymbols) {
  Builder builder;
  const Json input =
      builder.call("input", {}, {{"name", "ids"}, {"shape", {1, "T"}}, {"dtype", "i32"}, {"symbols", {{"T", 64}}}});
  EXPECT_EQ(input, Json::parse(R"([{"id": 0, "dtype": "i32", "shape": [1, "T"]}])"));
  const int table = builder.one("parameter", {}, {{"name", "table"}, {"shape", {256, 48}}});
  const Json rows = builder.call("embedding", {table, 0});
  EXPECT_EQ(rows[0]["shape"], Json::parse(R"([1, "T", 48])"));
  const Json parts = builder.call("split", Json::array({rows[0]["id"]}), {{"parts", 3}});
  ASSERT_EQ(parts.size(), 3U);
  const Json attended =
      builder.call("attention", {parts[0]["id"], parts[1]["id"], parts[2]["id"]}, {{"heads", 4}, {"causal", true}});
  EXPECT_EQ(attended[0]["shape"], Json::parse(R"([1, "T", 16])"));
  const Json last =
      builder.call("slice", Json::array({attended[0]["id"]}), {{"axis", 1}, {"start", "T-1"}, {"end", "T"}});
  EXPECT_EQ(last[0]["shape"], Json::parse("[1, 1, 16]"));
  builder.call("output", Json::array({last[0]["id"]}), {{"name", "output"}});
  EXPECT_EQ(builder.json(jerboa_graph_forward, "").at("symbols"), Json::parse(R"({"T": 64})"));
}

struct Wrong {
  Json call;
  jerboa_status status;
  const char* message;
};

TEST(GraphApi, ReportsErrorsAtOnce) {
  Builder builder(R"({"training": true})");
  const int a = builder.one("input", {}, {{"name", "a"}, {"shape", {8, 256}}});
  const int b = builder.one("input", {}, {{"name", "b"}, {"shape", {128, 512}}});
  const auto call = [](const char* function, const Json& operands, const Json& options = Json::object()) {
    return Json{{"function", function},
                {"operands", operands},
                {"options", options},
                {"site", "model.ts:41"},
                {"module", "blocks.3.qkv"}};
  };
  for (const Wrong& wrong : {
           Wrong{call("matmul", {a, b}), JERBOA_SHAPE_ERROR,
                 "blocks.3.qkv: matmul: [8, 256] x [128, 512]: inner sizes 256 and 128 differ (model.ts:41)"},
           Wrong{call("matmull", {a, b}), JERBOA_USAGE_ERROR, "there is no op or function matmull"},
           Wrong{call("param_input", Json::array()), JERBOA_USAGE_ERROR, "param_input is not made from operands"},
           Wrong{call("matmul", {a, 99}), JERBOA_USAGE_ERROR, "matmul: the graph has no tensor 99"},
           Wrong{call("matmul", {a, "b"}), JERBOA_USAGE_ERROR, "matmul: an operand is the id of a tensor"},
           Wrong{call("matmul", {a, b}, {{"transposed", true}}), JERBOA_GRAPH_ERROR,
                 "matmul has no attribute transposed"},
           Wrong{call("softmax", {a}, {{"axis", "last"}}), JERBOA_GRAPH_ERROR, "softmax: axis must be a whole number"},
           Wrong{call("attention", {a, a, a}, {{"haeds", 4}}), JERBOA_SHAPE_ERROR, "attention"},
           Wrong{call("square", {a}, {{"twice", true}}), JERBOA_USAGE_ERROR, "square: the key \"twice\" is unknown"},
           Wrong{call("square", Json::array()), JERBOA_USAGE_ERROR, "square: operand 1 is missing"},
           Wrong{call("input", Json::array(), {{"name", "c"}, {"shape", {"N"}}}), JERBOA_GRAPH_ERROR, "known symbols"},
           Wrong{call("input", Json::array(), {{"shape", {2}}}), JERBOA_USAGE_ERROR, "input: a name is required"},
           Wrong{call("input", Json::array(), {{"name", "a"}, {"shape", {2}}}), JERBOA_GRAPH_ERROR,
                 "the name a is taken"},
           Wrong{"{", JERBOA_USAGE_ERROR, "not valid JSON"},
       }) {
    EXPECT_EQ(builder.status(wrong.call), wrong.status) << wrong.call << ": " << jerboa_last_error();
    EXPECT_NE(std::string(jerboa_last_error()).find(wrong.message), std::string::npos)
        << wrong.call << ": " << jerboa_last_error();
  }
  // The failed calls have left the graph usable.
  builder.call("output", {builder.one("mean", {builder.one("mul", {a, a})})}, {{"name", "loss"}});
  jerboa_buffer* buffer = nullptr;
  EXPECT_EQ(jerboa_graph_training(builder.get(), nullptr, 0, &buffer), JERBOA_USAGE_ERROR);
  EXPECT_NE(std::string(jerboa_last_error()).find("the loss does not use b of the batch"), std::string::npos);
  EXPECT_EQ(jerboa_graph_call(nullptr, nullptr, 0, &buffer), JERBOA_USAGE_ERROR);
}

TEST(GraphApi, RefusesWrongOptimizers) {
  Builder builder(R"({"training": true})");
  const int x = builder.one("input", {}, {{"name", "x"}, {"shape", {4}}});
  const int w = builder.one("parameter", {}, {{"name", "w"}, {"shape", {4}}});
  builder.call("output", {builder.one("mean", {builder.one("mul", {x, w})})}, {{"name", "loss"}});
  for (const auto& [options, message] : {std::pair{R"({"optimizer": {"kind": "adamax"}})", "one of adamw, adam, sgd"},
                                         std::pair{R"({"optimizer": {"lr": -1}})", "-1"},
                                         std::pair{R"({"optimizer": {"lr": {"peek": 1}}})", "\"peek\" is unknown"},
                                         std::pair{R"({"optimizer": {"momentum": 0.9}})", "\"momentum\" is unknown"},
                                         std::pair{R"({"precision": "f8"})", "one of full, mixed_f16"}}) {
    jerboa_buffer* buffer = nullptr;
    EXPECT_EQ(jerboa_graph_training(builder.get(), options, std::string(options).size(), &buffer), JERBOA_USAGE_ERROR);
    EXPECT_NE(std::string(jerboa_last_error()).find(message), std::string::npos) << options << jerboa_last_error();
  }
  const Json sgd = builder.json(jerboa_graph_training,
                                R"({"optimizer": {"kind": "sgd", "momentum": 0.9, "lr": {"input": "rate"}}})");
  EXPECT_NE(sgd.dump().find("\"rate\""), std::string::npos);
}

}  // namespace
}  // namespace jerboa::c_api_test::graph_test
