#pragma once

#include <filesystem>
#include <vector>

#include <jerboa/generate/sampler.h>
#include <jerboa/models/config.h>

namespace jerboa::detail {

/// How the makers of a model want its tokens chosen, and which of them end a text.
struct GenerationConfig {
  std::vector<int> end_tokens;
  SamplerOptions sampling;
};

/// From generation_config.json, and what that does not say from config.json. Without either: the model's own
/// distribution, and no token that ends a text.
GenerationConfig read_generation_config(const std::filesystem::path& folder, const models::Config& config);

}  // namespace jerboa::detail
