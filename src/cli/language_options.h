#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/language/language_model.h>

namespace jerboa::cli {

/// What `generate` and `chat` have in common.
struct LanguageFlags {
  std::string device = "best", weights, schema, regex;
  int context = 0, max_tokens = 256;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool greedy = false, stats = false, echo = false;

  void add_to(CLI::App& command);
  LanguageModel open(const std::string& folder) const;
  /// The model's own recommendation with what was asked for instead.
  GenerateOptions generation(const LanguageModel& model) const;
};

/// To standard output at once.
void write_text(std::string_view text);
/// Tokens and their speed, to standard error.
void print_stats(const LanguageModel& model, const Generation& result);

}  // namespace jerboa::cli
