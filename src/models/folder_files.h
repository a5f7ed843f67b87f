#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Which files of a folder belong to a model.
namespace jerboa::models {

/// The command's record of where a folder comes from: not part of the model.
inline constexpr std::string_view record_name = "jerboa.json";

/// Whether a file of this name is part of a model besides its weights: a configuration, a template, or the tokenizer's.
bool is_small_model_file(std::string_view name);
/// Whether it holds weights: safetensors, or the index of several.
bool is_weights_file(std::string_view name);

/// The subfolders that modules.json names, for sentence-transformers' models; none if there is no such file.
std::vector<std::string> module_folders(const std::filesystem::path& folder);

/// Writes files by their names, which may have folders.
void write_model_files(const std::filesystem::path& folder, const std::map<std::string, std::string>& files);

}  // namespace jerboa::models
