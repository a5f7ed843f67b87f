#include <fmt/format.h>
#include <set>

#include <jerboa/base/error.h>

#include "cli/sources.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

bool is_model_folder(const fs::path& folder) {
  return fs::exists(folder / "config.json") &&
         (fs::exists(folder / "model.safetensors") || fs::exists(folder / "model.safetensors.index.json"));
}

}  // namespace

void copy_model(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  if (!fs::is_directory(from)) {
    fs::copy_file(from, to / from.filename());
    return;
  }
  static const std::set<std::string> kept{".json", ".safetensors", ".jinja", ".txt", ".model", ".bin"};
  for (const auto& entry : fs::directory_iterator(from))
    if (entry.is_regular_file() && kept.contains(entry.path().extension().string()) &&
        entry.path().filename() != "pytorch_model.bin")
      fs::copy_file(entry.path(), to / entry.path().filename());
}

void copy_model_in(const fs::path& from, const fs::path& to, const std::string& name) {
  std::set<fs::path> folders, files;
  if (is_model_folder(from)) folders.insert(from);
  for (const auto& entry : fs::recursive_directory_iterator(from)) {
    if (entry.is_directory() && is_model_folder(entry.path())) folders.insert(entry.path());
    if (entry.is_regular_file() && entry.path().extension() == ".gguf") files.insert(entry.path());
  }
  if (folders.size() + files.size() != 1)
    throw UsageError(
        fmt::format("{} holds {} models; it must hold one, a folder with config.json and safetensors or a .gguf file",
                    name, folders.size() + files.size()));
  copy_model(folders.empty() ? *files.begin() : *folders.begin(), to);
}

}  // namespace jerboa::cli
