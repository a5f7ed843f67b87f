#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/dtype.h>

#include "models/folder_files.h"

namespace jerboa::cli {

/// The folder of pulled models: JERBOA_HOME, or jerboa in XDG_DATA_HOME or ~/.local/share.
std::filesystem::path home_folder();

/// A model in the store: a folder under home_folder() / "models", with a record of its origin and the hashes of its
/// files.
struct StoredModel {
  std::string name;
  std::filesystem::path folder;
  std::filesystem::path model;  ///< the folder, or the .gguf file in it
};

/// The name of a stored model's record.
using models::record_name;

/// Whether a name is valid for a model: letters, digits, dots, dashes and underscores.
bool is_model_name(std::string_view name);
/// All stored models, sorted by name.
std::vector<StoredModel> stored_models();
std::optional<StoredModel> find_stored(const std::string& name);
/// The stored model of this name; throws BadArguments with a suggestion if there is none.
StoredModel need_stored(const std::string& name);

/// Resolves a user's name for a model: a path if it exists, otherwise the name of a stored model. Throws BadArguments
/// that says how to get it.
std::filesystem::path model_path(const std::string& model);
/// The same for given weights: a stored model's int8 and int4 weights are quantised once and kept beside it, and so are
/// those of a .gguf file whose blocks loading would otherwise convert every time.
std::filesystem::path model_path_for(const std::string& model, std::optional<DType> weights);

}  // namespace jerboa::cli
