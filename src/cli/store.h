#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/dtype.h>

#include "models/folder_files.h"

namespace jerboa::cli {

/// Where pulled models are: JERBOA_HOME, or jerboa in XDG_DATA_HOME or ~/.local/share.
std::filesystem::path home_folder();

/// A model in the store: a folder under home_folder() / "models", with a file that says where it comes from and which
/// hashes its files have.
struct StoredModel {
  std::string name;
  std::filesystem::path folder;
  std::filesystem::path model;  ///< the folder, or the .gguf file in it
};

/// The file of a stored model that describes it.
using models::record_name;

/// Whether a name can be that of a model: letters, digits, dots, dashes and underscores.
bool is_model_name(std::string_view name);
/// By name.
std::vector<StoredModel> stored_models();
std::optional<StoredModel> find_stored(const std::string& name);
/// The same; throws BadArguments that suggests a name if there is none.
StoredModel need_stored(const std::string& name);

/// What a user calls a model: a path if it exists, otherwise the name of a stored model. Throws BadArguments that says
/// how to get it.
std::filesystem::path model_path(const std::string& model);
/// The same for certain weights: int8 and int4 weights of a stored model are quantised once and kept beside it, and so
/// are those of a .gguf file whose blocks would be converted each time.
std::filesystem::path model_path_for(const std::string& model, std::optional<DType> weights);

}  // namespace jerboa::cli
