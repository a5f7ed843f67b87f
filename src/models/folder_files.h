#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Which files of a folder belong to a model.
namespace jerboa::models {

/// The command's record of where a folder came from, which is not part of the model.
inline constexpr std::string_view record_name = "jerboa.json";

/// Whether a file of this name belongs to a model but holds no weights: configurations, templates, tokenizer files.
bool is_small_model_file(std::string_view name);
/// Whether a file of this name holds weights: safetensors, or the index of sharded ones.
bool is_weights_file(std::string_view name);

/// The subfolders listed in modules.json of a sentence-transformers model; empty if there is no such file.
std::vector<std::string> module_folders(const std::filesystem::path& folder);

/// Writes files, whose names may contain folders.
void write_model_files(const std::filesystem::path& folder, const std::map<std::string, std::string>& files);

}  // namespace jerboa::models
