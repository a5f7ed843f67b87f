#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include <jerboa/base/error.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/config.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "models/rope_config.h"
#include "models/windows.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

namespace jerboa::models {
namespace {

using test::expect_error;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

TEST(Config, ReadsValuesByKey) {
  const Config config =
      Config::parse(R"({"n": 3, "x": 0.5, "on": true, "name": "a", "none": null, "list": ["p", "q"], "in": {"y": 1},
                        "numbers": [2, -1]})");
  EXPECT_EQ(config.integer("n"), 3);
  EXPECT_EQ(config.number("n"), 3.0);
  EXPECT_EQ(config.number("x"), 0.5);
  EXPECT_TRUE(config.flag("on"));
  EXPECT_EQ(config.text("name"), "a");
  EXPECT_EQ(config.texts("list"), (std::vector<std::string>{"p", "q"}));
  EXPECT_EQ(config.integers("numbers"), (std::vector<int>{2, -1}));
  EXPECT_EQ(config.integers("n"), std::vector<int>{3});
  EXPECT_EQ(config.size("n"), 3);
  EXPECT_FALSE(config.has("none"));
  EXPECT_EQ(config.integer("none", 7), 7);
  EXPECT_EQ(config.section("in")->integer("y"), 1);
  EXPECT_FALSE(config.section("out"));
}

TEST(Config, ReportsErrorsWithTheirPlace) {
  const Config config =
      Config::parse(R"({"n": "3", "huge": 4294967296, "in": {"y": 1.5}, "list": [1], "zero": 0, "mixed": [1, "a"]})",
                    "folder/config.json");
  expect_error<FileError>([&] { config.integer("m"); }, "folder/config.json: m is missing");
  expect_error<FileError>([&] { config.integer("n"); }, "folder/config.json: n is \"3\", which is not a whole number");
  expect_error<FileError>([&] { config.integer("n", 1); }, "not a whole number");
  expect_error<FileError>([&] { config.integer("huge"); },
                          "huge is 4294967296, which is not from -2147483648 to 2147483647");
  expect_error<FileError>([&] { config.section("in")->integer("y"); }, "folder/config.json: in: y is 1.5");
  expect_error<FileError>([&] { config.section("n"); }, "n is \"3\", which is not an object");
  expect_error<FileError>([&] { config.texts("list"); }, "not a list of strings");
  expect_error<FileError>([&] { config.integers("mixed"); }, "not a whole number or a list of them");
  expect_error<FileError>([&] { config.size("zero"); }, "folder/config.json: zero is 0, which is not from 1 to");
  expect_error<FileError>([] { Config::parse("[1]"); }, "not a JSON object");
  expect_error<FileError>([] { Config::parse("{"); }, "config.json: not valid JSON, at byte 1");
  expect_error<FileError>([] { Config::open("no/such/folder"); }, "no/such/folder");
}

TEST(Config, ReadsInfiniteLimitsAsNone) {
  const Config config = Config::parse(R"({"far": {"__float__": "Infinity"}, "near": 3.5, "none": null, "zero": 0,
                                          "below": {"__float__": "-Infinity"}, "odd": {"__float__": "NaN"}})");
  EXPECT_EQ(config.limit("far"), 0);
  EXPECT_EQ(config.limit("near"), 3.5);
  EXPECT_EQ(config.limit("none"), 0);
  EXPECT_EQ(config.limit("missing"), 0);
  expect_error<FileError>([&] { config.limit("zero"); }, "zero is 0, which is not above zero");
  for (const char* key : {"below", "odd"}) expect_error<FileError>([&] { config.limit(key); }, "is not a number");
  expect_error<FileError>([&] { config.number("far"); }, "far is {\"__float__\":\"Infinity\"}, which is not a number");
}

Graph graph_of(const Config& config) {
  return trace([&] {
    const GraphInputs inputs{.tensors = {{"ids", tensor_input("ids", {1, 4}, DType::i32)}}};
    output("logits", family_of(config).logits(config, inputs));
  });
}

int nodes_that_limit(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    if (node.op == Op::attention) return node.as<AttentionAttrs>().soft_cap > 0;
    return node.op == Op::clamp || node.op == Op::minimum || node.op == Op::tanh;
  }));
}

// An infinite limit limits nothing, and the graph is built without it.
TEST(Config, OfFamiliesMayHaveInfiniteLimits) {
  for (const auto& [family, keys] :
       {std::pair{"gemma2", "attn_logit_softcapping final_logit_softcapping"}, std::pair{"olmo", "clip_qkv"},
        std::pair{"gpt_oss", "swiglu_limit"}, std::pair{"xlstm", "gate_soft_cap output_logit_soft_cap"}}) {
    auto json = nlohmann::json::parse(test::read_text(goldens / family / "config.json"));
    std::istringstream names(keys);
    for (std::string key; names >> key;) json[key] = {{"__float__", "Infinity"}};
    EXPECT_GT(nodes_that_limit(graph_of(Config::open(goldens / family))), 0) << family;
    EXPECT_EQ(nodes_that_limit(graph_of(Config::parse(json.dump()))), 0) << family;
  }
}

TEST(Config, ReadsInfinitiesInLists) {
  const Config config = Config::parse(R"({"limits": [0, 0.5, {"__float__": "Infinity"}, {"__float__": "-Infinity"}],
                                          "words": ["Infinity"], "other": [{"__float__": "NaN"}], "one": 1})");
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(config.numbers("limits"), (std::vector<double>{0, 0.5, infinity, -infinity}));
  for (const char* key : {"words", "other", "one"})
    expect_error<FileError>([&] { config.numbers(key); }, "which is not a list of numbers");
  expect_error<FileError>([&] { config.numbers("none"); }, "config.json: none is missing");
}

// As Python writes them, which is not JSON.
TEST(Config, ReadsInfinitiesOfOlderFiles) {
  const Config config = Config::parse(R"({"limits": [0.0, Infinity, -Infinity], "one": Infinity,
                                          "a \"quoted\" Infinity": "\"Infinity\" \\"})");
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(config.numbers("limits"), (std::vector<double>{0, infinity, -infinity}));
  EXPECT_EQ(config.limit("one"), 0);
  EXPECT_EQ(config.text("a \"quoted\" Infinity"), "\"Infinity\" \\");
}

TEST(Config, FillsInDefaults) {
  const Config config = Config::parse(R"({"n": 3, "none": null})").with_defaults(R"({"n": 1, "none": 2, "more": 4})");
  EXPECT_EQ(config.integer("n"), 3);
  EXPECT_FALSE(config.has("none"));
  EXPECT_EQ(config.integer("more"), 4);
}

std::string first_families() {
  const auto table = families();
  return std::string(table[0].model_type) + ", " + std::string(table[1].model_type) + ", ";
}

TEST(Families, AreATable) {
  for (const Family& family : families())
    EXPECT_EQ(&family_of(Config::parse(R"({"model_type": ")" + std::string(family.model_type) + "\"}")), &family);
  expect_error<UsageError>([] { family_of(Config::parse(R"({"model_type": "perceptron"})")); },
                           "no model family is named \"perceptron\"; available: " + first_families());
  expect_error<FileError>([] { family_of(Config::parse("{}")); }, "model_type is missing");
}

RopeAttrs rope_of(const std::string& text) { return rope_attrs(Config::parse(text), 64); }
bool same(const RopeAttrs& a, const RopeAttrs& b) { return same_attrs(Attrs(a), Attrs(b)); }

TEST(RopeConfig, ReadsOldAndNewFilesAlike) {
  EXPECT_TRUE(same(rope_of("{}"), RopeAttrs{}));
  EXPECT_TRUE(same(rope_of(R"({"rope_theta": 5e5})"), {.base = 5e5}));
  EXPECT_TRUE(same(rope_of(R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}})"), {.base = 5e5}));
  const RopeAttrs llama3{.base = 5e5,
                         .scaling = RopeScaling::llama3,
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_context = 8192};
  EXPECT_TRUE(
      same(rope_of(R"({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                               "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"),
           llama3));
  EXPECT_TRUE(
      same(rope_of(R"({"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                               "high_freq_factor": 4, "original_max_position_embeddings": 8192}})"),
           llama3));
  EXPECT_TRUE(same(rope_of(R"({"max_position_embeddings": 32, "rope_scaling": {"type": "linear", "factor": 2}})"),
                   {.scaling = RopeScaling::linear, .factor = 2, .original_context = 32}));
  EXPECT_TRUE(same(
      rope_of(
          R"({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "beta_fast": 16}})"),
      {.scaling = RopeScaling::yarn, .factor = 4, .beta_fast = 16, .original_context = 32}));
  EXPECT_TRUE(same(rope_of(R"({"partial_rotary_factor": 0.5})"), {.dims = 32}));
  EXPECT_TRUE(same(rope_of(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})"), RopeAttrs{}));
  EXPECT_TRUE(same(rope_of(R"({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "dynamic", "alpha": 1000}})"),
                   {.base = 10000 * std::pow(1000.0, 32 / 30.0), .dims = 32}));
  // Seven features: four pairs, whose frequencies are 10000^(-2i/7).
  EXPECT_TRUE(same(rope_of(R"({"partial_rotary_factor": 0.11})"), {.base = std::pow(10000.0, 8 / 7.0), .dims = 8}));
  expect_error<FileError>(
      [] { rope_of(R"({"partial_rotary_factor": 0.11, "rope_scaling": {"type": "linear", "factor": 2}})"); },
      "rope_type linear cannot be combined with an odd number of rotated features, 7");
  expect_error<FileError>([] { rope_of(R"({"rope_scaling": {"type": "longrope"}})"); },
                          "config.json: rope_scaling: unknown type of rotary embedding \"longrope\"");
  expect_error<FileError>([] { rope_of(R"({"rope_scaling": {"type": "llama3", "factor": 2}})"); },
                          "low_freq_factor is missing");
}

TEST(Windows, OfLayersComeFromTheirTypesOrARule) {
  const auto windows = [](const std::string& text) {
    const Config config = Config::parse(text);
    return layer_windows(config, sliding_layers(config, [](int layer) { return layer == 1; }));
  };
  EXPECT_EQ(windows(R"({"num_hidden_layers": 3, "sliding_window": 8})"), (std::vector<int>{0, 8, 0}));
  EXPECT_EQ(windows(R"({"num_hidden_layers": 3, "sliding_window": null})"), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(windows(R"({"num_hidden_layers": 2, "sliding_window": 8,
                        "layer_types": ["sliding_attention", "full_attention"]})"),
            (std::vector<int>{8, 0}));
  expect_error<FileError>([&] { windows(R"({"num_hidden_layers": 2, "layer_types": ["full_attention"]})"); },
                          "config.json: 1 layer_types for 2 layers");
  expect_error<FileError>([&] { windows(R"({"num_hidden_layers": 1, "layer_types": ["linear_attention"]})"); },
                          "config.json: unknown entry \"linear_attention\"");
  expect_error<FileError>([&] { windows(R"({"num_hidden_layers": 1, "sliding_window": -1})"); },
                          "config.json: sliding_window is -1");
}

TEST(Windows, OfQwenAreSwitchedAndBeginAtALayer) {
  const auto windows = [](const std::string& more) {
    return qwen_windows(Config::parse(R"({"num_hidden_layers": 3, "sliding_window": 8)" + more + "}"));
  };
  EXPECT_EQ(windows(R"(, "max_window_layers": 1)"), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(windows(R"(, "use_sliding_window": true, "max_window_layers": 1)"), (std::vector<int>{0, 8, 8}));
  EXPECT_EQ(windows(R"(, "use_sliding_window": true)"), (std::vector<int>{0, 0, 0}));
}

// Weights

constexpr const char* tiny = R"({"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1, "n_positions": 8,
                                 "vocab_size": 6, "activation_function": "gelu_new"})";

Graph tiny_graph(const Config& config) {
  return forward_graph({{"ids", {1, 3}, DType::i32}}, [&](const Inputs& in) {
    return family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}});
  });
}

// A checkpoint with every parameter of the tiny model, under names without these first characters.
void write_tiny(const std::filesystem::path& path, std::size_t without, const std::string& left_out = "") {
  const Graph graph = tiny_graph(Config::parse(tiny));
  std::vector<float> zeros(256, 0);
  std::vector<TensorView> views;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || tensor.name == left_out) continue;
    const Sizes sizes = evaluate(tensor.type.shape, {});
    views.push_back(view_of(tensor.name.substr(without), sizes,
                            std::span<const float>(zeros).first(static_cast<std::size_t>(element_count(sizes)))));
  }
  write_safetensors(path, views);
}

TEST(Weights, AreFoundUnderLongAndShortNames) {
  const test::TempFolder folder;
  const Config config = Config::parse(tiny);
  const Graph graph = tiny_graph(config);
  for (const std::size_t without : {std::size_t{0}, std::string_view("transformer.").size()}) {
    write_tiny(folder / "model.safetensors", without);
    const auto params = read_params(SafeTensors::open(folder.path()), graph, family_of(config));
    EXPECT_EQ(params.size(), 16u);
    EXPECT_TRUE(params.contains("transformer.h.0.attn.c_attn.weight"));
  }
}

TEST(Weights, ThatAreMissingOrOfAnotherShapeAreNamed) {
  const test::TempFolder folder;
  const Config config = Config::parse(tiny);
  write_tiny(folder / "model.safetensors", 0, "transformer.ln_f.bias");
  expect_error<FileError>([&] { read_params(SafeTensors::open(folder.path()), tiny_graph(config), family_of(config)); },
                          "has no transformer.ln_f.bias");
  std::string wider = tiny;
  wider.replace(wider.find("\"n_positions\": 8"), 16, "\"n_positions\": 9");
  write_tiny(folder / "model.safetensors", 0);
  const Config other = Config::parse(wider);
  expect_error<FileError>([&] { read_params(SafeTensors::open(folder.path()), tiny_graph(other), family_of(other)); },
                          "transformer.wpe.weight is [8, 4], but config.json requires [9, 4]");
}

TEST(Weights, ThatAreNotFloatsAreRefused) {
  const test::TempFolder folder;
  const Config config = Config::parse(tiny);
  write_tiny(folder / "model.safetensors", 0);
  const SafeTensors good = SafeTensors::open(folder / "model.safetensors");
  std::vector<TensorView> views;
  for (const std::string& name : good.names()) views.push_back(good.view(name));
  for (TensorView& view : views)
    if (view.name == "transformer.wpe.weight") view.type = StoredType::I32;
  write_safetensors(folder / "odd.safetensors", views);
  const SafeTensors odd = SafeTensors::open(folder / "odd.safetensors");
  expect_error<FileError>([&] { check_params(odd, tiny_graph(config), family_of(config)); },
                          "transformer.wpe.weight is I32, but weights must be F64, F32, F16 or BF16");
}

TEST(Config, ErrorsQuoteItsTextsBrieflyAndInOneLine) {
  const std::string text = "\\u001b[2J" + std::string(100'000, 'z');  // clears a terminal
  const std::string llama = R"({"model_type": "llama",)",
                    sizes = R"("hidden_size": 8, "num_attention_heads": 2, "vocab_size": 9,
      "num_hidden_layers": 1, "intermediate_size": 8, "rms_norm_eps": 1e-5,)";
  for (const std::string& json : {
           R"({"model_type": ")" + text + R"("})",
           llama + sizes + R"("hidden_act": ")" + text + R"("})",
           llama + sizes + R"("hidden_act": "silu", "rope_scaling": {"rope_type": ")" + text + R"(", "factor": 2}})",
           R"({"model_type": "olmo3",)" + sizes + R"("hidden_act": "silu", "layer_types": [")" + text + R"("]})",
       }) {
    try {
      const Config config = Config::parse(json, "config.json");
      trace([&] { family_of(config).logits(config, {.tensors = {{"ids", tensor_input("ids", {1, 1}, DType::i32)}}}); });
      ADD_FAILURE() << json.substr(0, 40);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_LT(message.size(), 1200U) << json.substr(0, 40);
      EXPECT_EQ(message.find('\033'), std::string::npos) << message;
      EXPECT_NE(message.find("zzz…"), std::string::npos) << message;
    }
  }
}

// However much is missing or wrong, the message is a few lines long.
TEST(Weights, AreHeldAgainstTheConfigBeforeAnythingIsMade) {
  const test::TempFolder folder;
  write_tiny(folder / "model.safetensors", std::string_view("transformer.").size());
  const SafeTensors weights = SafeTensors::open(folder.path());
  const auto with_layers = [](int layers) {
    return Config::parse(fmt::format(R"({{"n_layer": {}}})", layers)).with_defaults(tiny);
  };
  const Family& family = family_of(with_layers(1));
  EXPECT_NO_THROW(check_layers(weights, with_layers(1), family));
  expect_error<FileError>(
      [&] { check_layers(weights, with_layers(60), family); },
      "config.json: n_layer is 60, but " + folder.path().string() +
          " has the weights transformer.h.N.… of 1 layers (its first tensor is \"h.0.attn.c_attn.bias\"");
  // Layers 0 and 59, of a model of 60.
  std::vector<TensorView> views;
  for (const std::string& name : weights.names()) {
    views.push_back(weights.view(name));
    if (!name.starts_with("h.0.")) continue;
    views.push_back(weights.view(name));
    views.back().name = "h.59." + name.substr(4);
  }
  const test::TempFolder sparse;
  write_safetensors(sparse / "model.safetensors", views);
  expect_error<FileError>([&] { check_layers(SafeTensors::open(sparse.path()), with_layers(60), family); },
                          " has the weights transformer.h.N.… of 2 layers, but not of layer 1 (");
  expect_error<FileError>([&] { check_layers(weights, with_layers(2147483647), family); },
                          "config.json: n_layer is 2147483647, which is not from 1 to 4096");
  const std::string message =
      test::message_of<FileError>([&] { check_params(weights, tiny_graph(with_layers(60)), family); });
  EXPECT_NE(message.find("has no transformer.h.1."), std::string::npos) << message;
  EXPECT_NE(message.find(" and 705 more that config.json asks for"), std::string::npos) << message;
  EXPECT_LT(message.size(), 400U);
  const Config wide = Config::parse(R"({"vocab_size": 10000000})").with_defaults(tiny);
  expect_error<FileError>([&] { check_params(weights, tiny_graph(wide), family); },
                          "wte.weight is [6, 4], but config.json requires [10000000, 4]");
}

}  // namespace
}  // namespace jerboa::models
