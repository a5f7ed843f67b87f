#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::cli {

// Where models come from. Each puts files into folders of its caller; downloads that were interrupted stay in
// `downloads`, and are continued by the next call.

/// Fetches packages of npm's registry, whichever npm is configured for, and unpacks them into the numbered subfolders
/// of `to`. Packages are named as npm names them, "name@version". Returns their exact names.
std::vector<std::string> fetch_npm(const std::vector<std::string>& packages, const std::filesystem::path& downloads,
                                   const std::filesystem::path& to);
/// Whether npm would take this as the name of a package, with or without a version.
bool is_npm_package(std::string_view name);

/// Fetches a model of a hub that speaks Hugging Face's file API, at the address in HF_ENDPOINT: "ORG/MODEL", with a
/// revision "ORG/MODEL@REVISION", or one file of it "ORG/MODEL/FILE.gguf". HF_TOKEN is sent if it is set. Returns the
/// files of the model, by their paths in `to`, where there may be others.
std::vector<std::string> fetch_hub(const std::string& name, const std::filesystem::path& to);
/// Throws BadArguments if a name is none of these, or HF_ENDPOINT is not set.
void check_hub(const std::string& name);

/// Copies a model out of a folder that holds one somewhere: a Hugging Face folder or a .gguf file. Throws UsageError,
/// which calls the folder `name`, if there is none or more than one.
void copy_model_in(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& name);
/// Whether a model's folder needs a file of this name: weights, configurations, templates and the tokenizer's.
bool is_model_file(std::string_view name);
/// A model's folder, with the subfolders that sentence-transformers' models have, or its .gguf file.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace jerboa::cli
