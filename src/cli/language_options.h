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

/// A type of weights or caches by its name for users; none for an empty name.
std::optional<DType> weights_type(const std::string& name);

/// A precision by its name for users; none for an empty name.
std::optional<Precision> precision_of(const std::string& name);

/// How a model is loaded.
struct ModelFlags {
  std::string device = "best", weights, precision;
  int context = 0, threads = 0;

  void add_to(CLI::App& command, const std::string& context_help);
  /// What can be wrong without the model; throws BadArguments.
  void check() const;
  Device chosen_device() const;
};

/// How a model that predicts tokens is loaded.
struct DecoderFlags : ModelFlags {
  std::string cache;

  void add_to(CLI::App& command, const std::string& context_help);
  LanguageModelOptions options() const;
  /// Loads a model by its name or path, and says so while it takes time.
  LanguageModel open(const std::string& model) const;
};

/// Guesses of the tokens that follow, which a model confirms several at a time.
struct DraftFlags {
  std::string draft_model;
  std::optional<int> drafts;

  /// `whose` says which texts --draft-model guesses for, if not all.
  void add_drafts_to(CLI::App& command, const std::string& whose = "");
  void check_drafts() const;
  /// GenerateOptions::drafts.
  int most_drafts() const { return drafts.value_or(draft_model.empty() ? 0 : 4); }
  /// Where the model of --draft-model is; "" without one.
  std::filesystem::path draft_path() const;
};

/// The options that `generate` and `chat` share.
struct LanguageFlags : DecoderFlags, DraftFlags {
  std::string schema, regex, tools, trace;
  std::optional<int> max_tokens;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool greedy = false, stats = false;

  void add_to(CLI::App& command);
  /// Only what may change from one answer to the next.
  void add_sampling_to(CLI::App& command);
  /// Also reads and compiles what the flags name.
  void check();
  /// The model's recommended options, overridden by those given.
  GenerateOptions generation(const LanguageModel& model) const;
  /// Opens the model, with a trace if --trace asks for one, which write_trace writes.
  LanguageModel open(const std::string& model) const;
  void write_trace(LanguageModel& model) const;
  bool is_constrained() const { return grammar_ != nullptr; }
  /// The list of --tools; empty without it.
  const nlohmann::ordered_json& tool_list() const { return tools_; }

 private:
  std::shared_ptr<const Grammar> grammar_;
  nlohmann::ordered_json tools_ = nlohmann::ordered_json::array();
};

/// Prints token counts and speed to standard error.
void print_stats(const LanguageModel& model, const Generation& result);
/// Whether an answer ended because there was no room for more.
bool is_cut(const Generation& result);
/// Says on standard error that an answer was cut, if it was.
void note_cut(const Generation& result);
/// Tokens per second after the first, which comes with the prompt.
double token_rate(const Generation& result);

}  // namespace jerboa::cli
