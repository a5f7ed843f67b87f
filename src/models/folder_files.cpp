#include "models/folder_files.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "base/parse_json.h"

namespace jerboa::models {
namespace {

namespace fs = std::filesystem;

// Whether a path stays within its folder.
bool is_inside(const fs::path& path) {
  return path.is_relative() &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

bool is_small_model_file(std::string_view name) {
  constexpr std::array<std::string_view, 3> tokenizer_files{"merges.txt", "vocab.txt", "tokenizer.bin"};
  if (std::find(tokenizer_files.begin(), tokenizer_files.end(), name) != tokenizer_files.end()) return true;
  if (name.ends_with(".jinja") || name.ends_with(".model")) return true;
  return name.ends_with(".json") && !name.ends_with(".index.json") && name != record_name;
}

bool is_weights_file(std::string_view name) {
  return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
}

std::vector<std::string> module_folders(const fs::path& folder) {
  const fs::path file = folder / "modules.json";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return {};
  const auto list = parse_json(FileContent(file).text(), file.string());
  std::vector<std::string> folders;
  for (const auto& item : list.is_array() ? list : nlohmann::json::array()) {
    const std::string path =
        item.is_object() && item.contains("path") && item["path"].is_string() ? item["path"].get<std::string>() : "";
    if (path.empty()) continue;  // the folder itself
    if (!is_inside(path))
      throw FileError(fmt::format("{}: the module {} is not in its folder", file.string(), in_quotes(path)));
    folders.push_back(path);
  }
  return folders;
}

void write_model_files(const fs::path& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, content] : files) {
    const fs::path path = folder / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error)
      throw FileError(fmt::format("{}: cannot create this folder: {}", path.parent_path().string(), error.message()));
    write_file_atomically(path, content);
  }
}

}  // namespace jerboa::models
