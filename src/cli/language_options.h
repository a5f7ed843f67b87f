#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

inline constexpr const char* model_help = "A Hugging Face folder (config.json, safetensors, tokenizer) or a .gguf file";

/// A type of weights by its name for users; none for an empty name.
std::optional<DType> weights_type(const std::string& name);

/// How a model is loaded.
struct ModelFlags {
  std::string device = "best", weights;
  int context = 0;

  void add_to(CLI::App& command, const std::string& context_help);
  LanguageModelOptions options() const;
  LanguageModel open(const std::string& path) const;
};

/// The options that `generate` and `chat` share.
struct LanguageFlags : ModelFlags {
  std::string schema, regex, trace;
  int max_tokens = 256, drafts = 0;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool greedy = false, stats = false, echo = false;

  void add_to(CLI::App& command);
  /// The model's recommended options, overridden by those given.
  GenerateOptions generation(const LanguageModel& model) const;
  /// Opens the model, with a trace if --trace asks for one, which write_trace writes.
  LanguageModel open(const std::string& path) const;
  void write_trace(LanguageModel& model) const;
};

/// Writes to standard output without buffering.
void write_text(std::string_view text);
/// Prints token counts and speed to standard error.
void print_stats(const LanguageModel& model, const Generation& result);

}  // namespace jerboa::cli
