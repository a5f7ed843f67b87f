#include <cstring>
#include <gtest/gtest.h>

#include <jerboa/base/file.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>
#include <jerboa/runtime/export.h>

#include "support/expect_error.h"
#include "support/temp_folder.h"

// Programs for WebGPU in files, made without a device: what was written comes back, and damage is refused.
namespace jerboa {
namespace {

// A regression step, with a state of its own, and a forward pass for any number of rows.
std::vector<std::pair<std::string, Graph>> graphs() {
  const auto predict = [](const Inputs& in) {
    const Tensor weight = param_input("weight", {3, 5}, {.init = Init::normal(0.5)});
    return matmul(tanh(in["x"]), weight, {.transpose_b = true});
  };
  const auto loss = [&](const Inputs& in) { return mean(square(predict(in) - in["y"])); };
  return {{"step", training_graph({{"x", {8, 5}}, {"y", {8, 3}}}, loss, Adam{.lr = 1e-2})},
          {"forward", forward_graph({{"x", {Dim::symbol("N", 300), 5}}}, predict)}};
}

std::string header_of(const std::filesystem::path& path) {
  const std::string text(FileContent(path).text());
  std::uint64_t length = 0;
  std::memcpy(&length, text.data() + 8, sizeof(length));
  return text.substr(16, length);
}

class GpuProgramFile : public testing::Test {
 protected:
  ProgramFile file = compile_program(graphs());
  test::TempFolder folder;
  std::filesystem::path path = folder.path() / "model.jerboa";

  GpuCode& step() { return file.entries[0].program.gpu; }
  void expect_refusal(const std::string& text) {
    save_program(path, file);
    test::expect_error<FileError>([&] { load_program(path); }, text);
  }
};

TEST_F(GpuProgramFile, ComesBackAsItWasWritten) {
  save_program(path, file);
  const ProgramFile loaded = load_program(path);
  EXPECT_EQ(loaded.target, "webgpu");
  ASSERT_EQ(loaded.entries.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const GpuCode &wanted = file.entries[i].program.gpu, &own = loaded.entries[i].program.gpu;
    ASSERT_FALSE(wanted.steps.empty());
    ASSERT_EQ(own.steps.size(), wanted.steps.size());
    ASSERT_EQ(own.shaders.size(), wanted.shaders.size());
    for (std::size_t k = 0; k < wanted.shaders.size(); ++k) EXPECT_EQ(own.shaders[k].source, wanted.shaders[k].source);
    for (std::size_t k = 0; k < wanted.steps.size(); ++k)
      EXPECT_EQ(own.steps[k].workgroups, wanted.steps[k].workgroups);
  }
  const auto again = folder.path() / "again.jerboa";
  save_program(again, loaded);
  EXPECT_EQ(FileContent(again).text(), FileContent(path).text());
}

TEST_F(GpuProgramFile, TellsTheHostEverything) {
  save_program(path, file);
  const std::string header = header_of(path);
  for (const char* word :
       {"\"gpu\"", "\"shaders\"", "\"workgroups\"", "@compute", "\"symbols\":{\"N\":300}", "\"init_kind\""})
    EXPECT_NE(header.find(word), std::string::npos) << word;
}

TEST_F(GpuProgramFile, RefusesStepsThatDoNotFit) {
  const ProgramFile whole = file;
  step().steps[0].shader = 1000;
  expect_refusal("there is no shader 1000");
  file = whole;
  step().steps[0].shader = -2;
  expect_refusal("there is no shader -2");
  file = whole;
  step().steps[0].bindings[0].buffer = -1;
  expect_refusal("there is no buffer -1");
  file = whole;
  step().steps[0].bindings[0].offset = 8;
  expect_refusal("not aligned");
  file = whole;
  step().steps[0].bindings[0].bytes += 4096;
  expect_refusal("beyond its end");
  file = whole;
  for (auto& binding : step().steps[0].bindings) binding.written = true;
  expect_refusal("is only to be read");
  file = whole;
  for (const auto binding : std::vector(step().steps[0].bindings))
    if (binding.written) step().steps[0].bindings.push_back(binding);
  expect_refusal("the same memory");
  file = whole;
  step().steps[0].workgroups = -1;
  expect_refusal("out of range");
  file = whole;
  step().steps[0].shader = -1;
  step().steps[0].bindings.resize(1);
  expect_refusal("a copy has a source and a target");
  file = whole;
  step().shaders[0].source.clear();
  expect_refusal("is empty");
}

TEST_F(GpuProgramFile, RefusesBuffersThatDoNotFitTheirTensors) {
  const ProgramFile whole = file;
  file.storage.clear();
  expect_refusal("does not fit what it holds");
  file = whole;
  file.entries[0].inputs[0].shape = {8, 6};
  expect_refusal("does not fit what it holds");
}

// Whatever byte is changed, a file is loaded or refused with an Error.
TEST_F(GpuProgramFile, SurvivesDamage) {
  save_program(path, file);
  const std::string whole(FileContent(path).text());
  const std::size_t stride = std::max<std::size_t>(1, whole.size() / 60);
  for (std::size_t at = 0; at < whole.size(); at += stride)
    for (const char replacement : {'9', '-', '"', '\0'}) {
      std::string damaged = whole;
      damaged[at] = replacement;
      write_file_atomically(path, damaged);
      try {
        load_program(path);
      } catch (const Error&) {
      }
    }
  for (std::size_t length = 0; length < whole.size(); length += stride) {
    write_file_atomically(path, whole.substr(0, length));
    EXPECT_THROW(load_program(path), FileError) << length;
  }
}

TEST(CompileProgram, RefusesEntriesThatDisagree) {
  const auto graph = [](std::int64_t size) { return trace([&] { output("y", param_input("p", {size}) * 2); }); };
  test::expect_error<UsageError>(
      [&] {
        compile_program({{"a", graph(3)}, {"b", graph(4)}});
      },
      "p is f32[4] in entry b");
  test::expect_error<UsageError>([&] { compile_program({{"a", graph(3)}, {"a", graph(3)}}); }, "two entries");
}

}  // namespace
}  // namespace jerboa
