#include "language/generation_config.h"

namespace jerboa::detail {
namespace {

SamplerOptions sampling_of(const models::Config& config) {
  SamplerOptions options;
  // Files that say nothing of sampling mean the likeliest token.
  if (!config.flag("do_sample", config.has("temperature") || config.has("top_p") || config.has("top_k"))) {
    options.temperature = 0;
    return options;
  }
  options.temperature = static_cast<float>(config.number("temperature", 1));
  options.top_k = config.integer("top_k", 50);  // what transformers assumes
  options.top_p = static_cast<float>(config.number("top_p", 1));
  options.min_p = static_cast<float>(config.number("min_p", 0));
  options.repetition_penalty = static_cast<float>(config.number("repetition_penalty", 1));
  return options;
}

}  // namespace

GenerationConfig read_generation_config(const std::filesystem::path& folder, const models::Config& config) {
  GenerationConfig result;
  const auto file = folder / "generation_config.json";
  const models::Config own = std::filesystem::exists(file) ? models::Config::open(file) : config;
  const models::Config& ends = own.has("eos_token_id") ? own : config;
  if (ends.has("eos_token_id")) result.end_tokens = ends.integers("eos_token_id");
  result.sampling = std::filesystem::exists(file) ? sampling_of(own) : SamplerOptions{};
  return result;
}

}  // namespace jerboa::detail
