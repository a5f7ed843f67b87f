#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::cli {

// The places models are pulled from. Each writes files into folders of the caller; interrupted downloads stay in
// `downloads`, and the next call resumes them.

/// Fetches packages from npm's registry, as npm is configured, and unpacks them into the numbered subfolders of `to`.
/// Packages are named as in npm, "name@version". Returns their exact names.
std::vector<std::string> fetch_npm(const std::vector<std::string>& packages, const std::filesystem::path& downloads,
                                   const std::filesystem::path& to);
/// Whether npm would accept this as the name of a package, with or without a version.
bool is_npm_package(std::string_view name);

/// Fetches a model from a hub with Hugging Face's file API, at the address in HF_ENDPOINT: "ORG/MODEL",
/// "ORG/MODEL@REVISION", or a single file "ORG/MODEL/FILE.gguf". Sends HF_TOKEN if it is set. Returns the model's files
/// by their paths in `to`, which may hold others.
std::vector<std::string> fetch_hub(const std::string& name, const std::filesystem::path& to);
/// Throws BadArguments if a name has none of these forms, or if HF_ENDPOINT is not set.
void check_hub(const std::string& name);

/// Finds the one model in a folder, a Hugging Face folder or a .gguf file, and copies it. Throws UsageError, which
/// calls the folder `name`, if there is none or more than one.
void copy_model_in(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& name);
/// Whether a file of this name belongs to a model: weights, configurations, templates and tokenizer files.
bool is_model_file(std::string_view name);
/// Copies a model's folder, including the subfolders of sentence-transformers' models, or its .gguf file.
void copy_model(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace jerboa::cli
