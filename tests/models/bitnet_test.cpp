#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/ops/ops.h>

#include "models/bit_linear.h"
#include "models/tiny_graph.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// BitNet's products with 8-bit activations and weights of -1, 0 and 1, which its golden does not use.
namespace jerboa::bitnet_test {
namespace {

using models::Config;
using test::expect_error;

HostTensor run(const Graph& graph, const TensorMap& inputs) {
  return compile(graph, {.device = Device::by_name("cpu")}).run(inputs).get("output");
}

TEST(BitLinear, RoundsEachRowOfActivationsTo8Bits) {
  const HostTensor x({3, 4}, {1.0F, -0.5F, 0.3F, 0.004F, 100.0F, -100.0F, 60.0F, 0.3F, 0, 0, 0, 1e-8F});
  const Graph graph =
      forward_graph({{"x", {3, 4}, DType::f32}}, [](const Inputs& in) { return models::round_activations(in["x"]); });
  const HostTensor rounded = run(graph, {{"x", x}});
  // In steps of 1/127 and of 100/127; the last row is below the smallest scale, of 1e-5/127.
  const std::vector<double> wanted{1, -64 / 127.0, 38 / 127.0, 1 / 127.0, 100, -100, 7600 / 127.0, 0, 0, 0, 0, 0};
  for (std::int64_t i = 0; i < rounded.size(); ++i)
    EXPECT_NEAR(rounded.number(i), wanted[static_cast<std::size_t>(i)], 1e-5) << i;
}

TEST(BitLinear, RoundsAMatrixToThreeValues) {
  const HostTensor w({2, 3}, {1.0F, -0.2F, 0.25F, -2.0F, 0.15F, 0.0F});  // the mean of the absolute values is 0.6
  const Graph graph =
      forward_graph({{"w", {2, 3}, DType::f32}}, [](const Inputs& in) { return models::round_weights(in["w"]); });
  const HostTensor rounded = run(graph, {{"w", w}});
  const std::vector<double> wanted{0.6, 0, 0, -0.6, 0, 0};
  for (std::int64_t i = 0; i < rounded.size(); ++i)
    EXPECT_NEAR(rounded.number(i), wanted[static_cast<std::size_t>(i)], 1e-6) << i;
}

std::string quantised(const std::string& type, const std::string& mode) {
  return R"("quantization_config": {"quant_method": "bitnet", "linear_class": ")" + type +
         R"(", "quantization_mode": ")" + mode + R"("})";
}

Config bitnet(const std::string& more) { return test::tiny_config("bitnet", more + R"(, "initializer_range": 0.5)"); }

/// A model whose parameters are given.
struct Model {
  explicit Model(const std::string& more, DType weights = DType::f32)
      : config(bitnet(more)), module(compile(graph(config, weights), {.device = Device::by_name("cpu")})) {}

  static Graph graph(const Config& config, DType weights) {
    return forward_graph({{"ids", {1, 5}, DType::i32}}, [&](const Inputs& in) {
      return models::family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}, .weights = weights});
    });
  }
  HostTensor logits() { return module.run({{"ids", HostTensor(DType::i32, {1, 5}, {3, 1, 4, 1, 5})}}).get("output"); }

  Config config;
  Module module;
};

bool is_rounded(const std::string& name) {
  return name.find("_proj.weight") != std::string::npos && !name.ends_with("weight_scale");
}

struct Ternary {
  HostTensor values;
  float scale = 0;
};

// A rounded weight as checkpoints store it, in place of a wide matrix.
Ternary ternary(const HostTensor& wide) {
  double sum = 0;
  for (const float value : wide.f32()) sum += std::abs(value);
  const double mean = sum / static_cast<double>(wide.size());
  Ternary result{HostTensor(DType::f32, wide.shape()), static_cast<float>(mean)};
  for (std::int64_t i = 0; i < wide.size(); ++i)
    result.values.set_number(i, std::clamp(std::nearbyint(wide.number(i) / mean), -1.0, 1.0));
  return result;
}

void expect_near(const HostTensor& one, const HostTensor& other, double within) {
  ASSERT_EQ(one.shape(), other.shape());
  for (std::int64_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one.number(i), other.number(i), within) << i;
}

// One set of weights, in each of the forms that checkpoints have.
TEST(BitNet, GivesTheSameLogitsFromWideAndFromRoundedWeights) {
  Model plain("\"x\": 0"), online(quantised("autobitlinear", "online"));
  const HostTensor wanted = online.logits();
  const auto wide = online.module.session().download_params();
  plain.module.session().upload_params(wide);
  double most = 0;
  const HostTensor exact = plain.logits();
  for (std::int64_t i = 0; i < exact.size(); ++i) most = std::max(most, std::abs(exact.number(i) - wanted.number(i)));
  EXPECT_GT(most, 0.01);

  for (const bool divided : {false, true}) {
    Model offline(quantised(divided ? "bitlinear" : "autobitlinear", "offline"));
    TensorMap params;
    for (const auto& [name, values] : wide) {
      if (!is_rounded(name)) {
        params.emplace(name, values);
        continue;
      }
      const Ternary rounded = ternary(values);
      params.emplace(name, rounded.values);
      params.emplace(name + "_scale", HostTensor({1}, {divided ? 1 / rounded.scale : rounded.scale}));
    }
    offline.module.session().upload_params(params);
    expect_near(offline.logits(), wanted, 1e-4);
  }
}

TEST(BitNet, ReadsWeightsThatAreFourToAByte) {
  const Model model(quantised("bitlinear", "offline"));
  const models::Family& family = models::family_of(model.config);
  std::vector<std::pair<std::string, HostTensor>> tensors;
  std::map<std::string, std::vector<std::byte>> packed;
  std::vector<TensorView> views;
  int next = 0;
  for (const TensorInfo& param : model.module.ir().tensors) {
    if (param.storage != Storage::param) continue;
    HostTensor values(DType::f32, evaluate(param.type.shape, {}));
    for (std::int64_t i = 0; i < values.size(); ++i) values.set_number(i, next++ * 7 % 11 % 3 - 1);
    tensors.emplace_back(param.name, values);
  }
  for (const auto& [name, values] : tensors) {
    if (!is_rounded(name)) {
      views.push_back(view_of(name, values.shape(), values.f32()));
      continue;
    }
    const std::int64_t rows = values.shape()[0] / 4, columns = values.shape()[1];
    auto& bytes = packed[name];
    bytes.resize(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows * columns; ++i)
      for (int part = 0; part < 4; ++part)
        bytes[static_cast<std::size_t>(i)] |=
            static_cast<std::byte>(static_cast<int>(values.number(part * rows * columns + i) + 1) << 2 * part);
    views.push_back({name, StoredType::U8, {rows, columns}, bytes});
  }
  const test::TempFolder folder;
  write_safetensors(folder / "model.safetensors", views);
  const auto read = models::read_params(SafeTensors::open(folder.path()), model.module.ir(), family);
  for (const auto& [name, values] : tensors) EXPECT_EQ(read.at(name), values) << name;
}

TEST(BitNet, KeepsTheModulesThatTheConfigNames) {
  const auto count = [](const std::string& more) {
    int rounded = 0;
    for (const Node& node : Model::graph(bitnet(more), DType::f32).nodes) rounded += node.op == Op::round;
    return rounded;
  };
  const std::string all = quantised("autobitlinear", "online");
  EXPECT_EQ(count("\"x\": 0"), 0);
  EXPECT_EQ(count(all), 3 * 7 * 2);  // of seven matrices in three layers, and of what they are multiplied with
  std::string some = all;
  some.replace(some.rfind('}'), 1, R"(, "modules_to_not_convert": ["lm_head", "layers.1", "down_proj"]})");
  EXPECT_EQ(count(some), 2 * 6 * 2);
}

TEST(BitNet, RefusesOtherSettings) {
  const auto refuse = [](const std::string& settings, const std::string& message) {
    expect_error<FileError>([&] { Model::graph(bitnet(R"("quantization_config": {)" + settings + "}"), DType::f32); },
                            "config.json: quantization_config: " + message);
  };
  refuse(R"("quant_method": "gptq")", "quant_method is \"gptq\", which is not bitnet");
  refuse(R"("quant_method": "bitnet", "linear_class": "lut")", "linear_class is \"lut\", which is not");
  refuse(R"("quant_method": "bitnet", "quantization_mode": "online")", "quantization_mode is \"online\", which needs");
  refuse(R"("quant_method": "bitnet", "quantization_mode": "never")", "quantization_mode is \"never\", which is not");
}

}  // namespace
}  // namespace jerboa::bitnet_test
