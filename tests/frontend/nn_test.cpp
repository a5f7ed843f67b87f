#include <cmath>
#include <gtest/gtest.h>

#include <jerboa/frontend/compile.h>
#include <jerboa/frontend/model.h>
#include <jerboa/frontend/nn.h>

#include "support/expect_error.h"

namespace jerboa {
namespace {

using Names = std::vector<std::string>;

template <class Model>
Names names_of(Model model) {
  Names names;
  for_each_parameter(model, [&](const std::string& path, const Parameter&) { names.push_back(path); });
  return names;
}

struct Pair {
  int width = 2;
  nn::Linear up{width, 2 * width}, down{2 * width, width, {.bias = false}};
  JERBOA_FIELDS(up, down)
  Tensor operator()(Tensor x) const { return x + down(relu(up(x))); }
};

struct Tower {
  int layers = 2;
  nn::Embedding table{5, 2};
  std::vector<Pair> pairs = nn::stack<Pair>(layers, {.width = 2});
  std::optional<nn::LayerNorm> norm = {};
  JERBOA_FIELDS(table, pairs, norm)
};

TEST(Nn, NamesComeFromTheFields) {
  EXPECT_EQ(names_of(Tower{}), (Names{"table.weight", "pairs.0.up.weight", "pairs.0.up.bias", "pairs.0.down.weight",
                                      "pairs.1.up.weight", "pairs.1.up.bias", "pairs.1.down.weight"}));
  EXPECT_EQ(names_of(Tower{.layers = 0, .norm = nn::LayerNorm(2)}),
            (Names{"table.weight", "norm.weight", "norm.bias"}));
  EXPECT_EQ(names_of(nn::Linear(3, 4)), (Names{"weight", "bias"}));
  EXPECT_EQ(names_of(nn::Dropout{}), Names{});
  EXPECT_EQ(names_of(std::vector<nn::RMSNorm>(2, nn::RMSNorm(4))), (Names{"0.weight", "1.weight"}));
  EXPECT_EQ(count_parameters(Tower{}), 10 + 2 * (8 + 4 + 8));
}

TEST(Nn, ACopyIsIndependent) {
  Pair model;
  assign_paths(model);
  Pair copy = model;
  copy.up.weight.path = "other";
  EXPECT_EQ(model.up.weight.path, "up.weight");
}

// Computes module(x) with these parameters.
template <class Model>
HostTensor run(const Model& model, const HostTensor& x, const TensorMap& params = {}) {
  Module module = compile_forward(model, [](const Model& net, const Inputs& in) { return net(in["x"]); },
                                  specs_of({{"x", x}}), {.device = Device::reference()});
  module.session().upload_params(params, {.partial = true});
  return module.run({{"x", x}}).get("output");
}

std::vector<double> numbers(const HostTensor& tensor) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < tensor.size(); ++i) values.push_back(tensor.number(i));
  return values;
}

TEST(Nn, LinearHasWeightsOutByIn) {
  const TensorMap params{{"weight", HostTensor({3, 2}, {1, 2, 3, 4, 5, 6})}, {"bias", HostTensor({3}, {10, 20, 30})}};
  EXPECT_EQ(numbers(run(nn::Linear(2, 3), HostTensor({1, 2}, {1, -1}), params)), (std::vector<double>{9, 19, 29}));
  const TensorMap alone{{"weight", params.at("weight")}};
  EXPECT_EQ(numbers(run(nn::Linear(2, 3, {.bias = false}), HostTensor({1, 2}, {1, -1}), alone)),
            (std::vector<double>{-1, -1, -1}));
}

TEST(Nn, InitialValuesAreInTheirRange) {
  const auto initial = [](const auto& model, const std::string& name, const HostTensor& x) {
    using Model = std::decay_t<decltype(model)>;
    return compile_forward(
               model, [](const Model& net, const Inputs& in) { return net(in["x"]); }, specs_of({{"x", x}}))
        .session()
        .download_param(name);
  };
  const HostTensor weight = initial(nn::Linear(64, 32), "weight", HostTensor(DType::f32, {1, 64}));
  double largest = 0, total = 0;
  for (const double value : numbers(weight)) {
    largest = std::max(largest, std::abs(value));
    total += value;
  }
  EXPECT_LE(largest, 1.0 / 8);
  EXPECT_GT(largest, 0.12);
  EXPECT_NEAR(total / 2048, 0, 0.01);
  const HostTensor table = initial(nn::Embedding(64, 32), "weight", HostTensor(DType::i32, {1}));
  double squares = 0;
  for (const double value : numbers(table)) squares += value * value / 2048;
  EXPECT_NEAR(std::sqrt(squares), 0.02, 0.001);
  EXPECT_EQ(numbers(initial(nn::LayerNorm(3), "weight", HostTensor(DType::f32, {3}))), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(numbers(initial(nn::Linear(2, 2, {.init = Init::constant(0.5)}), "bias", HostTensor(DType::f32, {1, 2}))),
            (std::vector<double>{0, 0}));
}

struct Both {
  nn::Embedding table{3, 2};
  JERBOA_FIELDS(table)
  Tensor operator()(Tensor ids) const { return table.logits(table(ids)); }
};

TEST(Nn, EmbeddingLooksUpAndScoresWithOneTable) {
  const TensorMap params{{"table.weight", HostTensor({3, 2}, {1, 0, 0, 2, 3, 3})}};
  HostTensor ids(DType::i32, {2});
  ids.set_number(0, 2);
  EXPECT_EQ(numbers(run(Both{}, ids, params)), (std::vector<double>{3, 6, 18, 1, 0, 3}));
}

TEST(Nn, NormsHaveUnitScaleByDefault) {
  const HostTensor x({1, 4}, {1, 3, 5, 7});
  const HostTensor layer = run(nn::LayerNorm(4, 0), x), rms = run(nn::RMSNorm(4, 0), x);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(layer.number(i), (2 * i + 1 - 4) / std::sqrt(5.0), 1e-6);
    EXPECT_NEAR(rms.number(i), (2 * i + 1) / std::sqrt(21.0), 1e-6);
  }
}

TEST(Nn, ConvolutionsHaveTheirOptions) {
  HostTensor image(DType::f32, {1, 2, 4, 4});
  for (std::int64_t i = 0; i < image.size(); ++i) image.set_number(i, static_cast<double>(i % 5));
  EXPECT_EQ(run(nn::Conv2d(2, 6, 3), image).shape(), (Sizes{1, 6, 2, 2}));
  EXPECT_EQ(run(nn::Conv2d(2, 6, 3, {.stride = 2, .padding = 1}), image).shape(), (Sizes{1, 6, 2, 2}));
  EXPECT_EQ(names_of(nn::Conv2d(2, 6, 3, {.bias = false})), Names{"weight"});
  HostTensor identity(DType::f32, {2, 1, 1, 1});
  for (int i = 0; i < 2; ++i) identity.set_number(i, 1);
  EXPECT_EQ(run(nn::Conv2d(2, 2, 1, {.groups = 2, .bias = false}), image, {{"weight", identity}}), image);

  const HostTensor signal({1, 1, 5}, {1, 2, 3, 4, 5});
  const TensorMap difference{{"weight", HostTensor({1, 1, 2}, {-1, 1})}};
  EXPECT_EQ(numbers(run(nn::Conv1d(1, 1, 2, {.dilation = 2, .bias = false}), signal, difference)),
            (std::vector<double>{2, 2, 2}));
}

struct RoundTrip {
  JERBOA_FIELDS()
  Tensor operator()(Tensor y) const { return nn::unsplit_heads(nn::split_heads(y, 4)); }
};

struct Split {
  JERBOA_FIELDS()
  Tensor operator()(Tensor y) const { return nn::split_heads(y, 4); }
};

struct Wrong {
  JERBOA_FIELDS()
  Tensor operator()(Tensor y) const { return nn::split_heads(y, 3); }
};

TEST(Nn, HeadsSplitAndMerge) {
  HostTensor x(DType::f32, {2, 3, 8});
  for (std::int64_t i = 0; i < x.size(); ++i) x.set_number(i, static_cast<double>(i));
  EXPECT_EQ(run(RoundTrip{}, x), x);
  const HostTensor parts = run(Split{}, x);
  EXPECT_EQ(parts.shape(), (Sizes{2, 4, 3, 2}));
  EXPECT_EQ(parts.number(6), 2);  // head 1, time 0
  test::expect_error<ShapeError>([&] { run(Wrong{}, x); }, "split_heads: [2, 3, 8] does not split into 3 heads");
}

// Dropout

struct Drop {
  nn::Dropout dropout{0.25};
  nn::Linear one{1, 1};
  JERBOA_FIELDS(dropout, one)
};

// A training step that captures dropout applied to ones, twice.
Session dropping(std::uint64_t seed) {
  Drop model;
  assign_paths(model);
  Session session(Device::reference(), {.seed = seed});
  const Graph graph = training_graph(
      {{"x", {1000}}},
      [&](const Inputs& in) {
        const Tensor first = capture(model.dropout(in["x"]), "first");
        const Tensor second = capture(model.dropout(in["x"]), "second");
        return mean(model.one(unsqueeze(first + second, {-1})));
      },
      Sgd{.lr = 0});
  session.add_entry("step", graph);
  return session;
}

HostTensor ones(std::int64_t count) {
  HostTensor x(DType::f32, {count});
  for (std::int64_t i = 0; i < count; ++i) x.set_number(i, 1);
  return x;
}

TEST(Dropout, DropsItsRateAndKeepsTheMean) {
  Session session = dropping(1);
  const HostTensor kept = session.step({{"x", ones(1000)}}, {.captures = {"first"}}).get("first");
  int dropped = 0;
  for (const double value : numbers(kept)) {
    if (value == 0)
      ++dropped;
    else
      EXPECT_FLOAT_EQ(static_cast<float>(value), 4.0f / 3);
  }
  EXPECT_NEAR(dropped, 250, 50);
}

TEST(Dropout, DiffersByStepAndPlaceAndReproducesWithTheSeed) {
  const auto masks = [](std::uint64_t seed) {
    Session session = dropping(seed);
    std::vector<HostTensor> list;
    for (int i = 0; i < 2; ++i) {
      const Result result = session.step({{"x", ones(1000)}}, {.all_captures = true});
      list.push_back(result.get("first"));
      list.push_back(result.get("second"));
    }
    return list;
  };
  const auto first = masks(1);
  for (std::size_t i = 0; i < first.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first[i], first[j]) << i << ' ' << j;
  EXPECT_EQ(masks(1), first);
  EXPECT_NE(masks(2)[0], first[0]);
}

TEST(Dropout, DoesNothingInEvaluation) {
  EXPECT_EQ(run(nn::Dropout{0.9}, ones(10)), ones(10));
  const Graph graph = forward_graph({{"x", {3}}}, [](const Inputs& in) { return nn::Dropout{0.5}(in["x"]); });
  EXPECT_EQ(graph.nodes.size(), 1u);
}

}  // namespace
}  // namespace jerboa
