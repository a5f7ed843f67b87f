#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>

namespace jerboa::detail {

/// How the makers of a model want its tokens chosen, and which of them end a text.
struct GenerationConfig {
  std::vector<int> end_tokens;
  SamplerOptions sampling;
};

/// From generation_config.json, where there is one, and what that does not say from config.json. Without either: the
/// model's own distribution, and no token that ends a text. Throws FileError for values that cannot be meant, such as
/// tokens that the model does not have.
GenerationConfig generation_config(const std::optional<models::Config>& file, const models::Config& config);
/// The same of a model's folder.
GenerationConfig read_generation_config(const std::filesystem::path& folder, const models::Config& config);

}  // namespace jerboa::detail
