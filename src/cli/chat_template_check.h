#pragma once

#include <filesystem>
#include <string>

#include <jerboa/base/error.h>

namespace jerboa::cli {

/// Whether a model has a chat template, found without loading it. True if the path is not a model, about which
/// loading says more.
bool has_chat_template(const std::filesystem::path& model);

/// A model without a chat template was given tools by some flags.
UsageError no_tools_without_template(const std::string& model, const std::string& flags);

}  // namespace jerboa::cli
