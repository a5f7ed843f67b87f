#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

inline constexpr const char* model_help =
    "The name of a model that was pulled, a Hugging Face folder (config.json, safetensors, tokenizer) or a .gguf file";

/// The weight or cache type that a user names; empty for an empty name.
std::optional<DType> weights_type(const std::string& name);

/// A precision by its name for users; none for an empty name.
std::optional<Precision> precision_of(const std::string& name);

/// Flags that say how a model is loaded.
struct ModelFlags {
  std::string device = "best", weights, precision;
  int context = 0, threads = 0;

  void add_to(CLI::App& command, const std::string& context_help);
  /// Checks what needs no model; throws BadArguments.
  void check() const;
  Device chosen_device() const;
};

/// Flags that say how a decoder is loaded.
struct DecoderFlags : ModelFlags {
  std::string cache;

  void add_to(CLI::App& command, const std::string& context_help);
  LanguageModelOptions options() const;
  /// Loads a model by name or path, and reports that if it takes a while.
  LanguageModel open(const std::string& model) const;
};

/// Flags of speculative decoding.
struct DraftFlags {
  std::string draft_model;
  std::optional<int> drafts;

  /// `whose` says which model --draft-model drafts for, if not for all.
  void add_drafts_to(CLI::App& command, const std::string& whose = "");
  void check_drafts() const;
  /// GenerateOptions::drafts.
  int max_drafts() const { return drafts.value_or(draft_model.empty() ? 0 : 4); }
  /// The path of the --draft-model; "" without one.
  std::filesystem::path draft_path() const;
};

/// The flags that `generate` and `chat` share.
struct LanguageFlags : DecoderFlags, DraftFlags {
  std::string schema, regex, tools, trace;
  std::optional<int> max_tokens;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool greedy = false, stats = false;

  void add_to(CLI::App& command);
  /// Adds only the flags that may change between answers.
  void add_sampling_to(CLI::App& command);
  /// Also reads and compiles schemas, expressions and tools.
  void check();
  /// The model's recommended options, overridden by the flags.
  GenerateOptions generation(const LanguageModel& model) const;
  /// Opens the model. If --trace is given, starts a trace, which write_trace writes.
  LanguageModel open(const std::string& model) const;
  void write_trace(LanguageModel& model) const;
  bool is_constrained() const { return grammar_ != nullptr; }
  /// The tools given by --tools; empty without it.
  const nlohmann::ordered_json& tool_list() const { return tools_; }

 private:
  std::shared_ptr<const Grammar> grammar_;
  nlohmann::ordered_json tools_ = nlohmann::ordered_json::array();
};

/// Prints token counts and speed to standard error.
void print_stats(const LanguageModel& model, const Generation& result);
/// Whether an answer was cut off by a limit.
bool is_cut(const Generation& result);
/// Reports on standard error that an answer was cut off, if it was.
void note_cut(const Generation& result);
/// Tokens per second, without the first one, which comes with prefill.
double token_rate(const Generation& result);

}  // namespace jerboa::cli
