#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <jerboa/io/safetensors.h>
#include <jerboa/language/language_model.h>

#include "support/byte_tokenizer.h"
#include "support/source_folder.h"
#include "support/temp_folder.h"

namespace jerboa::test {

using Tokens = std::vector<std::int32_t>;

inline const std::filesystem::path goldens = source_folder(JERBOA_SOURCE_DIR) / "tests/data/goldens";

// A golden model's folder with a tokenizer, and possibly other files.
class ModelFolder {
 public:
  explicit ModelFolder(const std::string& golden) : golden_(goldens / golden) {
    for (const char* file : {"config.json", "model.safetensors"}) std::filesystem::copy(golden_ / file, folder_ / file);
    write("tokenizer.json", byte_tokenizer());
  }

  void write(const std::string& file, const std::string& text) const { write_text(folder_ / file, text); }
  const std::filesystem::path& path() const { return folder_.path(); }
  LanguageModel open(LanguageModelOptions options = {}) const {
    if (!options.device) options.device = Device::cpu(2);
    return LanguageModel::load(path(), options);
  }
  Tokens golden(const std::string& name) const {
    const SafeTensors file = SafeTensors::open(golden_ / "golden.safetensors");
    const TensorView& view = file.view(name);
    const auto* values = reinterpret_cast<const std::int32_t*>(view.bytes.data());
    return {values, values + view.bytes.size() / sizeof(std::int32_t)};
  }
  Tokens prompt() const { return golden("input_ids"); }
  /// The options of the golden's continuation.
  GenerateOptions as_golden() const;
  Tokens continuation() const {
    const Tokens all = golden("greedy");
    const auto first = all.begin() + std::ssize(prompt());
    return {first, std::find(first, all.end(), 2)};  // the end token of all of them
  }

 private:
  std::filesystem::path golden_;
  TempFolder folder_;
};

inline GenerateOptions greedy(int tokens) {
  return {.max_tokens = tokens, .sampling = SamplerOptions{.temperature = 0}};
}

inline GenerateOptions ModelFolder::as_golden() const {
  return greedy(static_cast<int>(golden("greedy").size() - prompt().size()));
}

/// Goldens of decoders that differ in their attention, experts, weights or state.
inline constexpr const char* decoder_goldens[] = {"deepseek_v3", "gemma2", "gpt2",      "llama",
                                                  "mamba2",      "phi3",   "qwen3_moe", "qwen3_next"};

/// Every golden of a decoder, with its continuation.
inline std::vector<std::string> all_decoder_goldens() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
    const auto file = entry.path() / "golden.safetensors";
    if (std::filesystem::exists(file) && SafeTensors::open(file).contains("greedy"))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace jerboa::test
