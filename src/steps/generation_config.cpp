#include "steps/generation_config.h"

#include <fmt/format.h>

namespace jerboa::detail {
namespace {

constexpr double largest = 1000;  // for temperatures and penalties; larger values cannot be intended

float number_of(const models::Config& config, const std::string& key, double otherwise, bool (*fits)(double),
                const char* range) {
  const double value = config.number(key, otherwise);
  // A small positive double may become zero as a float.
  if (!fits(value) || !fits(static_cast<float>(value))) config.fail(key, fmt::format("is not {}", range));
  return static_cast<float>(value);
}

SamplerOptions sampling_of(const models::Config& config) {
  SamplerOptions options;
  // Files that do not mention sampling mean greedy decoding.
  if (!config.flag("do_sample", config.has("temperature") || config.has("top_p") || config.has("top_k"))) {
    options.temperature = 0;
    return options;
  }
  const auto a_share = [](double value) { return value > 0 && value <= 1; };
  options.temperature = number_of(
      config, "temperature", 1, [](double value) { return value >= 0 && value <= largest; }, "from 0 to 1000");
  options.top_k = config.integer("top_k", 50);  // transformers' default
  if (options.top_k < 0) config.fail("top_k", "is below zero");
  options.top_p = number_of(config, "top_p", 1, a_share, "above 0 and at most 1");
  options.min_p = number_of(
      config, "min_p", 0, [](double value) { return value >= 0 && value <= 1; }, "from 0 to 1");
  options.repetition_penalty = number_of(
      config, "repetition_penalty", 1, [](double value) { return value > 0 && value <= largest; },
      "above 0 and at most 1000");
  return options;
}

std::vector<int> end_tokens(const models::Config& config, int vocabulary) {
  if (!config.has("eos_token_id")) return {};
  std::vector<int> tokens = config.integers("eos_token_id");
  for (const int token : tokens)
    if (token < 0 || token >= vocabulary)
      config.fail("eos_token_id",
                  fmt::format("names token {}, but the model has tokens 0 to {}", token, vocabulary - 1));
  return tokens;
}

}  // namespace

GenerationConfig generation_config(const std::optional<models::Config>& file, const models::Config& config) {
  GenerationConfig result;
  const bool file_has_ends = file && file->has("eos_token_id");
  result.end_tokens = end_tokens(file_has_ends ? *file : config, config.size("vocab_size"));
  if (file) result.sampling = sampling_of(*file);
  return result;
}

GenerationConfig read_generation_config(const std::filesystem::path& folder, const models::Config& config) {
  const auto file = folder / "generation_config.json";
  if (!std::filesystem::exists(file)) return generation_config(std::nullopt, config);
  return generation_config(models::Config::open(file), config);
}

}  // namespace jerboa::detail
