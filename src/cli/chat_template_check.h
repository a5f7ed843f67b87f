#pragma once

#include <filesystem>

namespace jerboa::cli {

/// Whether a model has a chat template, found without loading it. True for what is no model, about which loading says
/// more.
bool has_chat_template(const std::filesystem::path& model);

}  // namespace jerboa::cli
