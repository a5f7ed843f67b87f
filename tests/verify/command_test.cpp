#include <array>
#include <cstdio>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>
#include <sys/wait.h>

#include <jerboa/io/safetensors.h>

#include "support/temp_folder.h"

// The output and exit status of `jerboa verify`.
namespace jerboa {
namespace {

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";

struct Outcome {
  int code = -1;
  std::string text;  // stdout and stderr
};

// On the CPU unless another device is requested: looking for the best one makes some drivers print messages.
constexpr const char* on_cpu = "--device cpu";

Outcome verify(const std::filesystem::path& path, const std::string& options = on_cpu) {
  const std::string line = JERBOA_COMMAND " verify '" + path.string() + "' " + options + " 2>&1";
  FILE* pipe = popen(line.c_str(), "r");
  Outcome outcome;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), buffer.size(), pipe) != nullptr) outcome.text += buffer.data();
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

std::string last_line(const std::string& text) {
  const auto end = text.find_last_not_of('\n');
  const auto start = text.find_last_of('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1, end - start);
}

// A copy of a safetensors file with other metadata, or with element `at` of one tensor increased by one.
void copy_changed(const std::filesystem::path& from, const std::filesystem::path& to,
                  const SafeTensors::Metadata& metadata, const std::string& tensor, std::size_t at) {
  const SafeTensors source = SafeTensors::open(from);
  std::vector<TensorView> views;
  std::vector<float> changed;
  for (const std::string& name : source.names()) {
    views.push_back(source.view(name));
    if (name != tensor) continue;
    changed = to_f32(source.view(name));
    changed.at(at) += 1;
    views.back() = view_of(name, source.view(name).shape, std::span<const float>(changed));
  }
  write_safetensors(to, views, metadata);
}

void copy_folder_changed(const test::TempFolder& to, const std::string& folder, const std::string& tensor,
                         std::size_t at) {
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy(goldens / folder / file, to / file);
  copy_changed(goldens / folder / "train.safetensors", to / "train.safetensors", {}, tensor, at);
}

TEST(VerifyCommand, SaysHowManyHold) {
  const Outcome outcome = verify(goldens / "ops.safetensors", "--device reference64");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.text, "97 passed, 0 failed\n");
}

TEST(VerifyCommand, NamesTheOpCaseThatDoesNotHold) {
  const test::TempFolder folder;
  const SafeTensors source = SafeTensors::open(goldens / "ops.safetensors");
  std::string output;
  for (const std::string& name : source.names())
    if (name.ends_with("/out")) output = name;
  copy_changed(goldens / "ops.safetensors", folder / "ops.safetensors", source.metadata(), output, 0);
  const Outcome outcome = verify(folder / "ops.safetensors");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.text.find(output.substr(0, output.size() - 4) + ": out: "), 0u) << outcome.text;
  EXPECT_EQ(last_line(outcome.text), "96 passed, 1 failed");
}

TEST(VerifyCommand, NamesAnUnknownOp) {
  const test::TempFolder folder;
  const SafeTensors source = SafeTensors::open(goldens / "ops.safetensors");
  auto metadata = source.metadata();
  std::string& cases = metadata.at("cases");
  const auto place = cases.find("\"op\": \"");
  ASSERT_NE(place, std::string::npos);
  cases.insert(place + 7, "no_such_");
  copy_changed(goldens / "ops.safetensors", folder / "ops.safetensors", metadata, "", 0);
  const Outcome outcome = verify(folder / "ops.safetensors");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.text.find("unknown op \"no_such_"), std::string::npos) << outcome.text;
  EXPECT_EQ(last_line(outcome.text), "96 passed, 1 failed");
}

TEST(VerifyCommand, NamesTheGradientThatDoesNotHold) {
  const test::TempFolder folder;
  copy_folder_changed(folder, "train_llama", "grad/model.layers.1.mlp.up_proj.weight", 7000);
  const Outcome outcome = verify(folder.path());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.text.find("grad/model.layers.1.mlp.up_proj.weight: 1 of 7168 values differ, the most at 7000"), 0u)
      << outcome.text;
  EXPECT_EQ(last_line(outcome.text), "42 passed, 1 failed");
}

TEST(VerifyCommand, NamesTheLossThatDoesNotHold) {
  const test::TempFolder folder;
  copy_folder_changed(folder, "train_qwen3", "losses", 2);
  const Outcome outcome = verify(folder.path());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.text.find("losses: 1 of 3 values differ, the most at 2"), 0u) << outcome.text;
}

TEST(VerifyCommand, NamesTheParameterThatDoesNotHold) {
  const test::TempFolder folder;
  copy_folder_changed(folder, "train_gpt2", "after3/transformer.wte.weight", 0);
  const Outcome outcome = verify(folder.path());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.text.find("after3/transformer.wte.weight: 1 of 16384"), 0u) << outcome.text;
}

// Before anything is built or allocated.
TEST(VerifyCommand, RefusesAConfigThatDoesNotDescribeTheWeights) {
  for (const char* model : {"llama", "train_llama", "bert"}) {
    const std::string config = test::read_text(goldens / model / "config.json");
    const auto refused = [&](const std::string& key, const std::string& value) {
      const test::TempFolder folder;
      for (const auto& file : std::filesystem::directory_iterator(goldens / model))
        std::filesystem::copy(file.path(), folder / file.path().filename().string());
      std::string changed = config;
      const auto at = changed.find('"' + key + "\": ") + key.size() + 4;
      changed.replace(at, changed.find_first_of(",\n}", at) - at, value);
      test::write_text(folder / "config.json", changed);
      const Outcome outcome = verify(folder.path());
      EXPECT_EQ(outcome.code, 1) << model;
      return outcome.text;
    };
    const std::string layers = refused("num_hidden_layers", "4096");
    EXPECT_NE(layers.find("num_hidden_layers is 4096, but"), std::string::npos) << layers;
    const std::string vocabulary = refused("vocab_size", "268435456");
    EXPECT_NE(vocabulary.find(", but config.json requires [268435456, "), std::string::npos) << vocabulary;
  }
}

// One line on stderr, whatever is wrong with the file.
TEST(VerifyCommand, RefusesUnreadableFiles) {
  const test::TempFolder folder;
  const std::string whole = test::read_text(goldens / "ops.safetensors");
  test::write_text(folder / "short.safetensors", std::string_view(whole).substr(0, whole.size() / 2));
  struct Case {
    std::filesystem::path path;
    std::string options;
    int code;
  };
  for (const auto& [path, options, code] : {Case{folder / "short.safetensors", on_cpu, 1},
                                            {folder / "missing.safetensors", on_cpu, 1},
                                            {folder.path(), on_cpu, 1},
                                            {goldens / "vit", on_cpu, 1},
                                            {goldens / "ops.safetensors", "--device abacus", 2}}) {
    const Outcome outcome = verify(path, options);
    EXPECT_EQ(outcome.code, code) << path;
    EXPECT_EQ(outcome.text.find("jerboa"), 0u) << outcome.text;
    EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  }
}

}  // namespace
}  // namespace jerboa
