#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>

#include "cli/interrupt.h"
#include "cli/sources.h"
#include "models/folder_files.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

bool is_model_folder(const fs::path& folder) {
  return fs::exists(folder / "modules.json") ||
         (fs::exists(folder / "config.json") &&
          (fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json")));
}

void copy_files(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    end_if_interrupted();
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && is_model_file(name)) fs::copy_file(entry.path(), to / name);
  }
}

}  // namespace

bool is_model_file(std::string_view name) { return models::is_small_model_file(name) || models::is_weights_file(name); }

void copy_model(const fs::path& from, const fs::path& to) {
  if (!fs::is_directory(from)) {
    fs::create_directories(to);
    fs::copy_file(from, to / from.filename());
    return;
  }
  copy_files(from, to);
  for (const std::string& module : models::module_folders(from))
    if (fs::is_directory(from / module)) copy_files(from / module, to / module);
}

void copy_model_in(const fs::path& from, const fs::path& to, const std::string& name) {
  std::set<fs::path> folders, files;
  if (is_model_folder(from)) return copy_model(from, to);
  for (auto entry = fs::recursive_directory_iterator(from); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && is_model_folder(entry->path())) {
      folders.insert(entry->path());
      entry.disable_recursion_pending();  // subfolders belong to the model
    }
    if (entry->is_regular_file() && entry->path().extension() == ".gguf") files.insert(entry->path());
  }
  if (folders.size() + files.size() != 1)
    throw UsageError(
        fmt::format("{} holds {} models; it must hold one, a folder with config.json and safetensors or a .gguf file",
                    name, folders.size() + files.size()));
  copy_model(folders.empty() ? *files.begin() : *folders.begin(), to);
}

}  // namespace jerboa::cli
