#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>

namespace jerboa::detail {

/// The recommended sampling options of a model, and its end tokens.
struct GenerationConfig {
  std::vector<int> end_tokens;
  SamplerOptions sampling;
};

/// From generation_config.json if it exists, with fallbacks from config.json. By default, tokens are sampled from the
/// model's unmodified distribution and there is no end token. Throws FileError for invalid values, such as tokens that
/// the model does not have.
GenerationConfig generation_config(const std::optional<models::Config>& file, const models::Config& config);
/// The same for a model's folder.
GenerationConfig read_generation_config(const std::filesystem::path& folder, const models::Config& config);

}  // namespace jerboa::detail
