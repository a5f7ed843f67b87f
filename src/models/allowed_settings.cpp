#include "models/allowed_settings.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace jerboa::models {

void allow_only(const Config& config, std::string_view json) {
  const auto given = nlohmann::json::parse(config.to_json()), values = nlohmann::json::parse(json);
  for (const auto& [key, allowed] : values.items())
    if (config.has(key) && given.at(key) != allowed)
      config.fail(key, fmt::format("is not supported; only {} is", allowed.dump()));
}

}  // namespace jerboa::models
