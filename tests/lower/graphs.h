#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <jerboa/frontend/compile.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/models/family.h>
#include <jerboa/ops/ops.h>

#include "cli/bench_gpt.h"

// Whole training steps, to lower under every target.
namespace jerboa::test {

using cli::Gpt;

struct Perceptron {
  nn::Linear hidden1{784, 512}, hidden2{512, 512}, out{512, 10};
  JERBOA_FIELDS(hidden1, hidden2, out)
  Tensor operator()(Tensor x) const { return out(relu(hidden2(relu(hidden1(reshape(x, {x.dim(0), 784})))))); }
};

struct ConvNet {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  nn::Linear out{32 * 7 * 7, 10};
  JERBOA_FIELDS(conv1, conv2, out)
  Tensor operator()(Tensor x) const {
    x = max_pool2d(relu(conv2(max_pool2d(relu(conv1(x))))));
    return out(reshape(x, {x.dim(0), x.dim(1) * x.dim(2) * x.dim(3)}));
  }
};

inline const AdamW optimizer{.lr = 1e-3, .weight_decay = 0.1, .clip_norm = 1};

inline Graph gpt_step(Gpt model, int batch, int length, const Optimizer& update = optimizer,
                      Precision precision = Precision::full) {
  assign_paths(model);
  return training_graph({{"ids", {batch, length}, DType::i32}, {"targets", {batch, length}, DType::i32}},
                        [&](const Inputs& in) { return mean(cross_entropy(model(in["ids"]), in["targets"])); }, update,
                        {}, {.precision = precision});
}

template <class Model>
Graph image_step(Model model, int batch) {
  assign_paths(model);
  return training_graph(
      {{"images", {batch, 1, 28, 28}, DType::f32}, {"labels", {batch}, DType::i32}},
      [&](const Inputs& in) { return mean(cross_entropy(model(in["images"]), in["labels"])); }, optimizer);
}

inline Graph golden_step(const std::string& family) {
  const auto config =
      models::Config::open(std::filesystem::path(JERBOA_SOURCE_DIR "/tests/data/goldens") / ("train_" + family));
  return training_graph(
      {{"ids", {2, 12}, DType::i32}, {"targets", {2, 12}, DType::i32}},
      [&](const Inputs& in) {
        return mean(
            cross_entropy(models::family_of(config).logits(config, {.tensors = {{"ids", in["ids"]}}}), in["targets"]));
      },
      optimizer);
}

inline const std::vector<std::pair<std::string, Graph>>& training_steps() {
  static const std::vector<std::pair<std::string, Graph>> steps{
      {"gpt", gpt_step({}, 8, 128)},
      {"tiny gpt", gpt_step({.width = 24, .layers = 2, .heads = 3, .context = 16}, 2, 10)},
      {"perceptron", image_step(Perceptron{}, 32)},
      {"convolution", image_step(ConvNet{}, 8)},
      {"gpt2", golden_step("gpt2")},
      {"llama", golden_step("llama")},
      {"qwen3", golden_step("qwen3")},
  };
  return steps;
}

}  // namespace jerboa::test
