#include <algorithm>
#include <gtest/gtest.h>

#include <jerboa/base/file.h>
#include <jerboa/compile/export.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/lower/lower.h>
#include <jerboa/ops/ops.h>

#include "lower/program_sections.h"
#include "support/expect_error.h"
#include "support/temp_folder.h"

// Program files for WebGPU, made without a device: a written file reads back unchanged, and damage is refused.
namespace jerboa {
namespace {

// A regression step with a state, and a forward pass for any number of rows.
std::vector<std::pair<std::string, Graph>> graphs() {
  const auto predict = [](const Inputs& in) {
    const Tensor weight = param_input("weight", {3, 5}, {.init = Init::normal(0.5)});
    return matmul(tanh(in["x"]), weight, {.transpose_b = true});
  };
  const auto loss = [&](const Inputs& in) { return mean(square(predict(in) - in["y"])); };
  return {{"step", training_graph({{"x", {8, 5}}, {"y", {8, 3}}}, loss, Adam{.lr = 1e-2})},
          {"forward", forward_graph({{"x", {Dim::symbol("N", 300), 5}}}, predict)}};
}

// The content of a file's sections, concatenated.
std::string text_of(const std::string& file) {
  std::string text;
  for (const detail::Section& section : detail::read_sections(file)) text += section.bytes;
  return text;
}

// The file with changed sections and matching checksums.
template <class Change>
std::string changed(const std::string& file, Change change) {
  auto sections = detail::read_sections(file);
  std::vector<std::string> texts;
  for (const detail::Section& section : sections) texts.emplace_back(section.bytes);
  change(sections, texts);
  for (std::size_t i = 0; i < sections.size(); ++i) sections[i].bytes = texts[i];
  return detail::write_sections(sections, detail::host_version);
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
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
    const GpuCode &wanted = file.entries[i].program.gpu, &found = loaded.entries[i].program.gpu;
    ASSERT_FALSE(wanted.steps.empty());
    ASSERT_EQ(found.steps.size(), wanted.steps.size());
    ASSERT_EQ(found.shaders.size(), wanted.shaders.size());
    for (std::size_t k = 0; k < wanted.shaders.size(); ++k)
      EXPECT_EQ(found.shaders[k].source, wanted.shaders[k].source);
    for (std::size_t k = 0; k < wanted.steps.size(); ++k)
      EXPECT_EQ(found.steps[k].workgroups, wanted.steps[k].workgroups);
  }
  const auto again = folder.path() / "again.jerboa";
  save_program(again, loaded);
  EXPECT_EQ(FileContent(again).text(), FileContent(path).text());
}

TEST_F(GpuProgramFile, HasOnlyTheSectionsThatAGpuHostNeeds) {
  const std::string text = text_of(encode_program(file));
  for (const char* word : {"\"device\":\"webgpu\"", "\"shaders\"", "\"workgroups\"", "@compute",
                           "\"symbols\":{\"N\":300}", "\"init_kind\"", "\"binding_bytes\""})
    EXPECT_NE(text.find(word), std::string::npos) << word;
  for (const char* word : {"\"kernels\"", "\"dispatches\"", "\"loads\""})
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  const ProgramFile loaded = decode_program(encode_program(file), "file");
  EXPECT_TRUE(loaded.entries[0].program.cpu.kernels.empty());
  EXPECT_TRUE(loaded.entries[0].program.gpu.foreign);
  EXPECT_FALSE(file.entries[0].program.gpu.foreign);
}

TEST_F(GpuProgramFile, ListsItsRequirements) {
  GpuRequirements needs;
  for (const ProgramEntry& entry : file.entries) {
    const GpuRequirements requirements = gpu_requirements(entry.program);
    EXPECT_FALSE(requirements.f16);
    EXPECT_GT(requirements.buffer_bytes, 0);
    EXPECT_GT(requirements.binding_bytes, 0);
    EXPECT_GE(requirements.bindings, 2);
    EXPECT_LE(requirements.bindings, Target::webgpu_default().max_bindings);
    EXPECT_GE(requirements.invocations, 1);
    EXPECT_LE(requirements.invocations, Target::webgpu_default().max_invocations);
    EXPECT_LE(requirements.workgroup_bytes, Target::webgpu_default().workgroup_bytes);
    needs.workgroup_bytes = std::max(needs.workgroup_bytes, requirements.workgroup_bytes);
  }
  EXPECT_GT(needs.workgroup_bytes, 0);
}

TEST_F(GpuProgramFile, RefusesNeedsThatAreUnknownOrTooSmall) {
  const std::string whole = encode_program(file);
  const auto refuse = [&](const std::string& from, const std::string& to, const std::string& message) {
    const std::string other = changed(whole, [&](auto&, auto& texts) { replace(texts[0], from, to); });
    test::expect_error<FileError>([&] { decode_program(other, "model.jerboa"); }, "model.jerboa: " + message);
  };
  refuse("\"features\":[]", "\"features\":[\"telepathy\"]",
         "needs the feature telepathy, which Jerboa 0.1.0 does not know");
  refuse("\"bindings\":", "\"wishes\":1,\"bindings\":", "needs the limit wishes, which Jerboa 0.1.0 does not know");
  refuse("\"workgroup_bytes\":", "\"workgroup_bytes\":0,\"buffer_bytes\":",
         "needs more of a device than its requirements state");
}

TEST_F(GpuProgramFile, RefusesChecksThatHaveNoOutputsAndRatesThatAreNoNumbers) {
  file.entries[1].checks.finite = {{"x", Op::exp, "model.cpp:3"}};
  expect_refusal("the checks need the output check/finite of 1 i32");
  file.entries[1].checks.finite.clear();
  file.entries[1].checks.indices = {{"ids", Op::embedding, "", {}}};
  expect_refusal("the checks need the output check/indices of 2 i32");
  file.entries[1].checks = {};
  file.entries[1].inputs.front().rate = Rate::finite;
  expect_refusal("the rate x is not one number");
}

// Hosts that do not know the section must not run a program as if it had no checks.
TEST_F(GpuProgramFile, SaysThatItMustBeChecked) {
  const auto kinds = [](const std::string& bytes) {
    std::map<std::string, bool> required;
    for (const detail::Section& section : detail::read_sections(bytes)) required[section.kind] = section.required;
    return required;
  };
  EXPECT_FALSE(kinds(encode_program(file)).contains("CHCK"));
  const ProgramFile checked = compile_program(graphs(), Target::webgpu_default(), {.finite = true});
  EXPECT_EQ(kinds(encode_program(checked)).at("CHCK"), true);
  const ProgramFile loaded = decode_program(encode_program(checked), "file");
  ASSERT_FALSE(loaded.entries[0].checks.finite.empty());
  EXPECT_EQ(loaded.entries[0].checks.finite.size(), checked.entries[0].checks.finite.size());
  EXPECT_EQ(loaded.entries[0].checks.finite.back().name, checked.entries[0].checks.finite.back().name);
}

// A host derives these states from a parameter: one of another size would be filled from beyond its end.
TEST_F(GpuProgramFile, RefusesCopiesThatDoNotMatchTheirParameter) {
  file.storage.push_back({"f16/weight", DType::f16, {3, 5}, false, {}});
  save_program(path, file);
  EXPECT_NO_THROW(load_program(path));
  PersistentTensor& copy = file.storage.back();
  copy.shape = {3, 500};
  expect_refusal("f16/weight is not the f16 copy of a parameter weight");
  copy = {"f16/weight", DType::f32, {3, 5}, false, {}};
  expect_refusal("f16/weight is not the f16 copy of a parameter weight");
  copy = {"f16/other", DType::f16, {3, 5}, false, {}};
  expect_refusal("f16/other is not the f16 copy of a parameter other");
}

TEST_F(GpuProgramFile, RefusesInitialValuesThatATypeCannotHold) {
  file.storage.push_back({"counter", DType::i32, {2}, false, Init::constant(7)});
  save_program(path, file);
  EXPECT_NO_THROW(load_program(path));
  Init& init = file.storage.back().init;
  init = Init::constant(3e9);
  expect_refusal("counter cannot hold its initial values, such as 3000000000");
  init = Init::normal(1e9);
  expect_refusal("counter cannot hold its initial values, such as -16000000000");
}

TEST_F(GpuProgramFile, RefusesSectionsThatAreMissingOrUnknown) {
  const std::string whole = encode_program(file);
  const auto refuse = [&](auto change, const std::string& message) {
    const std::string other = changed(whole, change);
    test::expect_error<FileError>([&] { decode_program(other, "model.jerboa"); }, "model.jerboa: " + message);
  };
  refuse([](auto& sections, auto&) { sections[2].kind = "WARP"; },
         "needs the section WARP, which Jerboa 0.1.0 does not know");
  refuse([](auto& sections, auto&) { sections[2].kind = "WARP", sections[2].required = false; },
         "lacks the section GPU ");
  refuse([](auto& sections, auto&) { sections[2].kind = "LOOP", sections[2].required = false; },
         "has steps that repeat (section LOOP), which Jerboa 0.1.0 cannot run");
  refuse([](auto& sections, auto&) { sections[2].kind = "PROG"; }, "has the section PROG twice");
  // An optional unknown section is skipped.
  const std::string more = changed(whole, [](auto& sections, auto& texts) {
    sections.push_back({"NOTE", false, {}});
    texts.emplace_back("for the reader");
  });
  EXPECT_EQ(encode_program(decode_program(more, "file")), whole);
}

TEST_F(GpuProgramFile, NamesBothVersions) {
  const std::string whole = encode_program(file);
  const auto refuse = [](const std::string& text, const std::string& message) {
    test::expect_error<FileError>([&] { decode_program(text, "model.jerboa"); }, "model.jerboa: " + message);
  };
  refuse("", "not a Jerboa program file");
  refuse("JERBOAP4" + whole.substr(8), "a program file of format 4, but Jerboa 0.1.0 reads format 5: export it again");
  std::string later = whole;
  later[8] = 9;
  refuse(later, "a program file of format 9, but Jerboa 0.1.0 reads format 5: use a later Jerboa");
  refuse(detail::write_sections(detail::read_sections(whole), {7, 2, 1}),
         "needs Jerboa 7.2.1 or later, but this is 0.1.0");
}

// Every byte counts: a checksum finds any change, except in the gaps between sections.
TEST_F(GpuProgramFile, FindsDamage) {
  const std::string whole = encode_program(file);
  std::string damaged = whole;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  test::expect_error<FileError>([&] { decode_program(damaged, "f"); },
                                "f: the header is damaged: its checksum does not match");
  damaged = whole;
  damaged[40] = static_cast<char>(damaged[40] ^ 1);
  test::expect_error<FileError>([&] { decode_program(damaged, "f"); }, "f: the header is damaged");
  damaged = whole;
  std::string_view last;  // the last section that holds anything; only padding follows it
  for (const detail::Section& section : detail::read_sections(whole))
    if (!section.bytes.empty()) last = section.bytes;
  const auto at = static_cast<std::size_t>(last.data() - whole.data()) + last.size() - 1;
  damaged[at] = static_cast<char>(damaged[at] ^ 1);
  test::expect_error<FileError>([&] { decode_program(damaged, "f"); }, "is damaged: its checksum does not match");
  test::expect_error<FileError>([&] { decode_program(whole.substr(0, whole.size() - 1), "f"); }, "is truncated");
  test::expect_error<FileError>([&] { decode_program(whole.substr(0, 40), "f"); },
                                "the table of sections is truncated");
  test::expect_error<FileError>([&] { decode_program(whole.substr(0, 12), "f"); }, "the header is truncated");
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
  expect_refusal("is read-only");
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
  expect_refusal("a copy needs a source and a target");
  file = whole;
  step().shaders[0].source.clear();
  expect_refusal("is empty");
}

TEST_F(GpuProgramFile, RefusesBuffersThatDoNotFitTheirTensors) {
  const ProgramFile whole = file;
  file.storage.clear();
  expect_refusal("does not match its contents");
  file = whole;
  file.entries[0].inputs[0].shape = {8, 6};
  expect_refusal("does not match its contents");
}

// Whatever byte of a section is changed, checksum and all, a file is loaded or refused with an Error.
TEST_F(GpuProgramFile, SurvivesDamage) {
  save_program(path, file);
  const std::string whole(FileContent(path).text());
  const std::size_t stride = std::max<std::size_t>(1, whole.size() / 60);
  for (std::size_t number = 0; number < 3; ++number)
    for (std::size_t at = 0;; at += stride / 3) {
      bool past = false;
      for (const char replacement : {'9', '-', '"', '\0'}) {
        const std::string damaged = changed(whole, [&](auto&, auto& texts) {
          past = at >= texts[number].size();
          if (!past) texts[number][at] = replacement;
        });
        try {
          decode_program(damaged, "file");
        } catch (const FileError&) {
        }
      }
      if (past) break;
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
