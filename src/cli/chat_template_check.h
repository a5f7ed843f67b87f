#pragma once

#include <filesystem>
#include <string>

#include <jerboa/base/error.h>

namespace jerboa::cli {

/// Whether a model has a chat template, found without loading it. True if the path is not a model, since loading gives
/// a better error.
bool has_chat_template(const std::filesystem::path& model);

/// The error for flags that give tools to a model without a chat template.
UsageError no_tools_without_template(const std::string& model, const std::string& flags);

}  // namespace jerboa::cli
