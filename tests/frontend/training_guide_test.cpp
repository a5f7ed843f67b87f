// The code of docs/training.md that is not in an example: it must compile and do what the page says.
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>

#include <jerboa/jerboa.h>

#include "support/temp_folder.h"

namespace jerboa {
namespace {

struct Classifier {
  int classes = 10;
  nn::Conv2d conv{1, 4, 3, {.padding = 1}};
  nn::Dropout dropout{0.1};
  nn::Linear out{4, classes};
  JERBOA_FIELDS(conv, dropout, out)

  Tensor operator()(Tensor images) const {
    const Tensor features = capture(mean(relu(conv(images)), {2, 3}), "features");
    return out(dropout(features));
  }
};

Batch images() {
  HostTensor pixels(DType::f32, {2, 1, 5, 5}), labels(DType::i32, {2});
  for (std::int64_t i = 0; i < pixels.size(); ++i) pixels.set_number(i, static_cast<double>(i % 3));
  labels.set_number(1, 3);
  return {{"images", pixels}, {"labels", labels}};
}

TEST(TrainingGuide, CapturesAndEvaluation) {
  Trainer trainer(Classifier{}, classification_loss);
  const Batch batch = images();
  auto r = trainer.step(batch, {.captures = {"features"}});
  HostTensor features = r.get("features");
  EXPECT_EQ(features.shape(), (Sizes{2, 4}));

  auto forward = trainer.compile_forward("images");
  HostTensor logits = forward({{"images", batch.at("images")}}).get("output");
  EXPECT_EQ(logits.shape(), (Sizes{2, 10}));

  auto both = trainer.compile_forward([](const Classifier& model, const Inputs& in) -> Outputs {
    Tensor maps = relu(model.conv(in["images"]));
    return {{"maps", maps}, {"logits", model.out(mean(maps, {2, 3}))}};
  });
  HostTensor maps = both({{"images", batch.at("images")}}).get("maps");
  EXPECT_EQ(maps.shape(), (Sizes{2, 4, 5, 5}));
}

TEST(TrainingGuide, Options) {
  Trainer trainer(Classifier{}, classification_loss,
                  {.optimizer = AdamW{.lr = warmup_cosine(3e-4, 100, 5000),
                                      .weight_decay = 0.1,
                                      .decay = [](const std::string& name) { return name.ends_with("weight"); },
                                      .clip_norm = 1},
                   .seed = 42,
                   .accumulate = 4});
  for (int part = 0; part < 4; ++part) trainer.step(images());
  EXPECT_EQ(trainer.steps(), 1);
}

TEST(TrainingGuide, RatesFromTheHost) {
  Trainer trainer(Classifier{}, classification_loss, {.optimizer = Sgd{.lr = HostRate{"lr"}, .momentum = 0.9}});
  Batch batch = images();
  batch["lr"] = HostTensor(0.01f);
  trainer.step(batch);
  EXPECT_EQ(trainer.steps(), 1);
}

TEST(TrainingGuide, Checkpoints) {
  const test::TempFolder folder;
  const auto run = folder / "run";
  const Batch batch = images();
  {
    Trainer trainer(Classifier{}, classification_loss);
    trainer.step(batch);
    trainer.save(run);
  }
  Trainer trainer(Classifier{}, classification_loss);
  LoadReport report = trainer.load(run);
  if (!report.complete()) std::cout << report.left.size() << " states of another optimizer were left in the file\n";
  EXPECT_EQ(trainer.steps(), 1);
  EXPECT_TRUE(report.complete());
  auto weights = SafeTensors::open(run);
  EXPECT_TRUE(weights.contains("conv.weight"));
}

struct SmallWords {
  nn::Embedding table{256, 32, {.dtype = DType::bf16}};
  nn::Linear out{32, 256, {.dtype = DType::bf16}};
  JERBOA_FIELDS(table, out)
  Tensor operator()(Tensor ids) const { return out(cast(table(ids), DType::f32)); }
};

TEST(TrainingGuide, SixteenBits) {
  Trainer trainer(SmallWords{}, next_token_loss);
  HostTensor ids(DType::i32, {2, 4});
  trainer.step({{"ids", ids}, {"targets", ids}});
  EXPECT_EQ(trainer.session().download_param("table.weight").dtype(), DType::bf16);
}

TEST(TrainingGuide, AdversarialPairs) {
  nn::Linear generator(4, 2), critic(2, 1);
  for_each_parameter(generator, [](const std::string& name, Parameter& p) { p.path = "generator." + name; });
  for_each_parameter(critic, [](const std::string& name, Parameter& p) { p.path = "critic." + name; });
  auto side = [](const std::string& name) {
    return [name](const std::string& param) { return param.starts_with(name); };
  };

  Graph critic_step = trace([&] {
    Tensor made = stop_gradient(generator(tensor_input("noise", {8, 4})));
    Tensor loss = mean(softplus(critic(made))) + mean(softplus(-critic(tensor_input("real", {8, 2}))));
    append_optimizer(append_grad(loss, side("critic.")), Adam{.lr = 4e-4, .name = "critic"});
    output("loss", loss);
  });
  Graph generator_step = trace([&] {
    Tensor loss = mean(softplus(-critic(generator(tensor_input("noise", {8, 4})))));
    append_optimizer(append_grad(loss, side("generator.")), Adam{.lr = 1e-4, .name = "generator"});
    output("loss", loss);
  });
  Session session = create_session({{"critic", critic_step}, {"generator", generator_step}});
  HostTensor noise(DType::f32, {8, 4}), real(DType::f32, {8, 2});
  for (int i = 0; i < 3; ++i) session.run("critic", {{"noise", noise}, {"real", real}});
  session.run("generator", {{"noise", noise}});
  EXPECT_EQ(session.download_state("critic/step").item(), 3);
  EXPECT_EQ(session.download_state("generator/step").item(), 1);
}

TEST(TrainingGuide, LowLevelApi) {
  Graph graph = trace([] {
    Tensor x = tensor_input("x", {Dim::symbol("N", 64), 2});
    Tensor w = param_input("w", {2}, {.init = Init::normal(1)});
    Tensor loss = mean(square(sum(x * w, {-1}) - 1));
    append_adam(append_grad(loss), {.lr = 0.1});
    output("loss", loss);
  });
  Session session = create_session({{"step", graph}});
  double loss = session.step({{"x", HostTensor({2, 2}, {1, 2, 3, 4})}}).loss();
  EXPECT_GE(loss, 0);
}

// Documentation

std::vector<std::string> stripped_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find_first_not_of(' ');
    lines.push_back(first == std::string::npos ? "" : line.substr(first));
  }
  return lines;
}

// Every block of C++ or CMake in these pages appears, line by line, in a file that is compiled or used as is.
TEST(TrainingGuide, CodeInTheDocumentationIsCodeThatIsTested) {
  const std::filesystem::path root = JERBOA_SOURCE_DIR;
  std::string tested;
  for (const char* folder : {"examples", "src/models", "tests/frontend", "tests/install/outside", "tests/language",
                             "tests/serving", "tests/webgpu"})
    for (const auto& entry : std::filesystem::directory_iterator(root / folder))
      for (const std::string& line : stripped_lines(entry.path())) tested += line + "\n";
  int blocks = 0;
  for (const char* page : {"README.md", "docs/training.md", "docs/devices.md", "docs/language-models.md",
                           "docs/serving.md", "docs/adding-a-model-family.md"}) {
    std::optional<std::string> block;
    for (const std::string& line : stripped_lines(root / page)) {
      if (line == "```cpp" || line == "```cmake") {
        block = "";
      } else if (line == "```" && block) {
        ++blocks;
        EXPECT_NE(tested.find(*block), std::string::npos) << page << " shows code that is nowhere tested:\n" << *block;
        block.reset();
      } else if (block) {
        *block += line + "\n";
      }
    }
  }
  EXPECT_GT(blocks, 12);
}

TEST(TrainingGuide, MixedPrecisionAndChecks) {
  Trainer mixed(Classifier{}, classification_loss, {.optimizer = AdamW{.lr = 3e-4}, .precision = Precision::mixed_f16});
  EXPECT_EQ(mixed.step(images()).get("loss_scale").item(), 65536);
  Trainer checked(Classifier{}, classification_loss, {.check_finite = true});  // or JERBOA_CHECK=finite
  Batch batch = images();
  checked.step(batch);
  batch.at("images").set_number(3, INFINITY);
  EXPECT_THROW(checked.step(batch), NotFiniteError);
}

}  // namespace
}  // namespace jerboa
