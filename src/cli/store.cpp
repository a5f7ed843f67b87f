#include "cli/store.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <jerboa/base/error.h>
#include <jerboa/io/gguf.h>
#include <jerboa/io/safetensors.h>
#include <jerboa/models/quantise.h>

#include "cli/arguments.h"
#include "cli/catalogue.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The .gguf file of a folder that holds no other model.
fs::path model_in(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "config.json", ignored)) return folder;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".gguf") return entry.path();
  return folder;
}

std::vector<std::string> known_names() {
  std::vector<std::string> names;
  for (const StoredModel& model : stored_models()) names.push_back(model.name);
  for (const CatalogueEntry& entry : catalogue()) names.emplace_back(entry.name);
  return names;
}

// The type to which loading would convert most of a GGUF file's weights, which takes time; empty if they are kept as
// they are.
std::optional<DType> converted_type(const fs::path& path) {
  if (path.extension() != ".gguf") return std::nullopt;
  const Gguf file = Gguf::open(path);
  std::size_t kept = 0, all = 0;
  for (const std::string& name : file.names()) {
    const GgufTensor& tensor = file.tensor(name);
    all += tensor.elements();
    const bool is_kept = tensor.type == GgmlType::F32 || tensor.type == GgmlType::F16 ||
                         tensor.type == GgmlType::BF16 || tensor.type == GgmlType::Q4_0 ||
                         tensor.type == GgmlType::Q4_1 || tensor.type == GgmlType::Q5_0 ||
                         tensor.type == GgmlType::Q8_0;
    if (is_kept) kept += tensor.elements();
  }
  return 2 * kept > all ? std::nullopt : std::optional(DType::i8);
}

[[noreturn]] void fail_to_find(const std::string& model) {
  const auto listed = catalogue();
  if (std::any_of(listed.begin(), listed.end(), [&](const CatalogueEntry& entry) { return entry.name == model; }))
    throw BadArguments(fmt::format("{} has not been pulled yet; jerboa pull {} fetches it", model, model));
  const std::string meant = nearest(model, known_names());
  throw BadArguments(
      fmt::format("{}: no such file or folder, and no model of this name was pulled{}", model,
                  meant.empty() ? std::string("; see jerboa list") : fmt::format("; did you mean {}?", meant)));
}

}  // namespace

fs::path home_folder() {
  if (const std::string home = variable("JERBOA_HOME"); !home.empty()) return home;
  if (const std::string data = variable("XDG_DATA_HOME"); !data.empty()) return fs::path(data) / "jerboa";
  const std::string home = variable("HOME");
  if (home.empty()) throw UsageError("neither JERBOA_HOME nor HOME is set, so there is no folder for models");
  return fs::path(home) / ".local" / "share" / "jerboa";
}

bool is_model_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  };
  return !name.empty() && name.size() <= 128 && name[0] != '.' && name[0] != '-' &&
         std::all_of(name.begin(), name.end(), fits);
}

std::optional<StoredModel> find_stored(const std::string& name) {
  if (!is_model_name(name)) return std::nullopt;
  const fs::path folder = home_folder() / "models" / name;
  std::error_code ignored;
  if (!fs::exists(folder / record_name, ignored)) return std::nullopt;
  return StoredModel{name, folder, model_in(folder)};
}

std::vector<StoredModel> stored_models() {
  std::vector<StoredModel> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(home_folder() / "models", ignored))
    if (auto model = find_stored(entry.path().filename().string())) found.push_back(std::move(*model));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

StoredModel need_stored(const std::string& name) {
  if (auto found = find_stored(name)) return *found;
  std::vector<std::string> names;
  for (const StoredModel& model : stored_models()) names.push_back(model.name);
  const std::string meant = nearest(name, names);
  throw BadArguments(
      fmt::format("no model named {} was pulled{}", name,
                  meant.empty() ? std::string("; see jerboa list") : fmt::format("; did you mean {}?", meant)));
}

fs::path model_path(const std::string& model) {
  std::error_code ignored;
  if (fs::exists(model, ignored)) return model;
  if (const auto stored = find_stored(model)) return stored->model;
  if (is_model_name(model)) fail_to_find(model);
  throw BadArguments(fmt::format("{}: no such file or folder", model));
}

fs::path model_path_for(const std::string& model, std::optional<DType> weights) {
  const fs::path path = model_path(model);
  const auto stored = find_stored(model);
  if (!stored || path != stored->model) return path;
  if (!weights) weights = converted_type(path);
  if (weights != DType::i8 && weights != DType::i4) return path;
  if (fs::is_directory(path) && models::quantised_type(SafeTensors::open(path))) return path;
  if (fs::is_directory(path) && !fs::exists(path / "config.json")) return path;  // the model is in a subfolder
  const fs::path kept = stored->folder / models::quantised_name(*weights);
  if (fs::exists(kept / "config.json")) return kept;
  const Waiting waiting(fmt::format("quantising {} to {}, once", model, models::quantised_name(*weights)));
  try {
    models::quantise_folder(path, kept, *weights);
    return kept;
  } catch (const Error& error) {
    if (fs::exists(kept / "config.json")) return kept;  // another process finished first
    note(fmt::format("the quantised weights of {} are not kept: {}", model, error.what()));
    return path;
  }
}

}  // namespace jerboa::cli
