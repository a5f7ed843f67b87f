#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <jerboa/backend/cpu.h>
#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/language/language_model.h>
#include <jerboa/models/save_folder.h>

#include "support/expect_error.h"
#include "support/gguf_models.h"
#include "support/temp_folder.h"

// Models from GGUF files: the goldens continue like transformers, whichever file they come from.
namespace jerboa::gguf_test {
namespace {

using Tokens = std::vector<std::int32_t>;

const std::filesystem::path goldens = JERBOA_SOURCE_DIR "/tests/data/goldens";
constexpr const char* families[] = {"llama",  "llama3_scaled", "qwen2", "qwen3", "qwen3_moe",
                                    "gemma2", "gemma3_text",   "phi3",  "gpt2"};

Tokens golden_tokens(const std::string& family, const std::string& name) {
  return to_i32(SafeTensors::open(goldens / family / "golden.safetensors").view(name));
}

LanguageModel open(const std::filesystem::path& path, LanguageModelOptions options = {}) {
  if (!options.device) options.device = Device::cpu(2);
  return LanguageModel::load(path, options);
}

// Expects the same continuation of the golden prompt as transformers', up to an end token.
void expect_golden(LanguageModel& model, const std::string& family) {
  const Tokens prompt = golden_tokens(family, "input_ids"), all = golden_tokens(family, "greedy");
  const auto first = all.begin() + std::ssize(prompt);
  const Tokens wanted(first, std::find(first, all.end(), 2));
  const GenerateOptions greedy{.max_tokens = 24, .sampling = SamplerOptions{.temperature = 0}};
  EXPECT_EQ(model.continue_tokens(prompt, greedy).tokens, wanted) << family;
}

TEST(LanguageModelFromGguf, ContinuesAsTransformersDoes) {
  const test::TempFolder folder;
  for (const char* family : families) {
    const auto path = folder / fmt::format("{}.gguf", family);
    test::write_text(path, test::GoldenGguf(goldens / family).file());
    LanguageModel model = open(path);
    expect_golden(model, family);
    EXPECT_EQ(model.end_tokens(), std::vector<int>{2});
  }
}

TEST(LanguageModelFromGguf, BecomesAFolderThatContinuesTheSame) {
  const test::TempFolder folder;
  for (const char* family : families) {
    const auto path = folder / fmt::format("{}.gguf", family), made = folder / family;
    test::write_text(path, test::GoldenGguf(goldens / family).file());
    models::save_folder(made, models::open_model_folder(path));
    LanguageModel model = open(made);
    expect_golden(model, family);
    const SafeTensors written = SafeTensors::open(made), wanted = SafeTensors::open(goldens / family);
    ASSERT_EQ(written.names(), wanted.names()) << family;
    for (const std::string& name : wanted.names())
      EXPECT_EQ(written.entry(name).shape, wanted.entry(name).shape) << family << ": " << name;
  }
}

TEST(LanguageModelFromGguf, KeepsEightBitsWithoutRoundingAgain) {
  const test::TempFolder folder;
  test::write_text(folder / "a.gguf", test::GoldenGguf(goldens / "llama", true).file());
  const Device exact(make_cpu_backend());  // without rounding activations
  LanguageModel kept = open(folder / "a.gguf", {.device = exact});
  const std::vector<std::string> params = kept.session().param_names();
  EXPECT_NE(std::find(params.begin(), params.end(), "lm_head.weight.quantised"), params.end())
      << "int8 by default, as in the file";
  const Tokens prompt = golden_tokens("llama", "input_ids");
  const std::vector<float> logits = kept.next_logits(prompt);
  const std::vector<float> wanted =
      open(folder / "a.gguf", {.device = exact, .weights = DType::f32}).next_logits(prompt);
  double error = 0, total = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    error += std::pow(logits[i] - wanted[i], 2);
    total += std::pow(wanted[i], 2);
  }
  // The down projections' rows do not fit blocks, are stored in f32 and become f16; everything else is exact.
  EXPECT_LT(std::sqrt(error / total), 1e-3);
}

TEST(LanguageModelFromGguf, ReadsTextAndChat) {
  const test::TempFolder folder;
  test::GoldenGguf golden(goldens / "llama");
  golden.writer().text("tokenizer.chat_template",
                       "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
  test::write_text(folder / "a.gguf", golden.file());
  LanguageModel model = open(folder / "a.gguf");
  EXPECT_EQ(model.tokenizer().encode("Hi!").ids, (Tokens{'H', 'i', '!'}));
  EXPECT_EQ(model.tokenizer().decode(Tokens{'H', 'i', '!'}), "Hi!");
  ASSERT_TRUE(model.has_chat_template());
  const GenerateOptions greedy{.max_tokens = 8, .sampling = SamplerOptions{.temperature = 0}};
  EXPECT_EQ(model.chat("Hi", greedy).tokens, model.continue_tokens(Tokens{1, 'H', 'i', 2}, greedy).tokens);
}

TEST(LanguageModelFromGguf, ReportsErrors) {
  const test::TempFolder folder;
  test::write_text(folder / "a.gguf", "not a model");
  test::expect_error<FileError>([&] { open(folder / "a.gguf"); }, "a.gguf: not a GGUF file");
  test::write_text(folder / "a.bin", "not a model");
  test::expect_error<UsageError>([&] { open(folder / "a.bin"); },
                                 "a.bin: a model is a Hugging Face folder or a .gguf file");
  test::GoldenGguf golden(goldens / "llama");
  std::string file = golden.file();
  const std::string key = "llama.block_count";
  file.replace(file.find(key) + key.size() + 4, 4, test::bytes_of(std::uint32_t{61}));
  test::write_text(folder / "a.gguf", file);
  test::expect_error<FileError>([&] { open(folder / "a.gguf"); }, "num_hidden_layers is 61, but ");
}

TEST(SaveFolder, WritesWholeFoldersOnly) {
  const test::TempFolder folder;
  const models::ModelFolder model = models::open_model_folder(goldens / "qwen2");
  models::save_folder(folder / "out/", model, DType::f16);
  const SafeTensors written = SafeTensors::open(folder / "out");
  EXPECT_EQ(written.entry("model.norm.weight").type, StoredType::F16);
  EXPECT_NE(test::read_text(folder / "out/config.json").find("\"float16\""), std::string::npos);
  test::expect_error<UsageError>([&] { models::save_folder(folder / "out", model); }, "out already exists; remove it");
  test::expect_error<UsageError>([&] { models::save_folder(folder / "other", model, DType::i8); }, "not i8");
  std::size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++entries;
  EXPECT_EQ(entries, 1u) << "nothing half-written remains";
  test::expect_error<FileError>([&] { models::open_model_folder(folder.path()); }, "there is no config.json");
}

// Trained parameters, with the files of the model that they belong to.
TEST(SaveFolder, WritesParametersOfASession) {
  const test::TempFolder folder;
  const auto path = folder / "llama.gguf";
  test::write_text(path, test::GoldenGguf(goldens / "llama").file());
  LanguageModel model = open(path);
  models::save_folder(folder / "made", models::make_model_folder(model.session().download_params(),
                                                                 models::open_model_folder(path).files));
  LanguageModel again = open(folder / "made");
  expect_golden(again, "llama");
  EXPECT_EQ(SafeTensors::open(folder / "made").names(), SafeTensors::open(goldens / "llama").names());
  test::expect_error<UsageError>(
      [&] { models::make_model_folder(open(path, {.weights = DType::i8}).session().download_params(), {}); },
      "only f32, f16 and bf16 parameters can be saved");
}

}  // namespace
}  // namespace jerboa::gguf_test
