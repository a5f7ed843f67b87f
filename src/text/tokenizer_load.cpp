#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/text/tokenizer.h>

#include "text/sentencepiece.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw FileError(fmt::format("{}: cannot be opened", path.string()));
  const auto size = file.tellg();
  std::string content(size < 0 ? 0 : static_cast<std::size_t>(size), '\0');
  file.seekg(0);
  if (size < 0 || !file.read(content.data(), size)) throw FileError(fmt::format("{}: cannot be read", path.string()));
  return content;
}

// Whether a folder's tokenizer_config.json wants the marks of beginning and end, where it says so.
SentencePieceOptions options_beside(const fs::path& file) {
  SentencePieceOptions options;
  const fs::path config_path = file.parent_path() / "tokenizer_config.json";
  if (!fs::is_regular_file(config_path)) return options;
  const auto config = nlohmann::json::parse(read_file(config_path), nullptr, false);
  if (!config.is_object()) throw FileError(fmt::format("{}: not a JSON object", config_path.string()));
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_boolean()) return std::nullopt;
    return found->get<bool>();
  };
  options.add_bos = flag("add_bos_token");
  options.add_eos = flag("add_eos_token");
  return options;
}

fs::path file_in(const fs::path& folder) {
  if (fs::is_regular_file(folder / "tokenizer.json")) return folder / "tokenizer.json";
  std::vector<fs::path> models;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".model" && entry.is_regular_file()) models.push_back(entry.path());
  std::sort(models.begin(), models.end());
  for (const auto& model : models)
    if (model.filename() == "tokenizer.model") return model;
  if (!models.empty()) return models[0];
  if (fs::is_regular_file(folder / "tokenizer.bin")) return folder / "tokenizer.bin";
  throw FileError(fmt::format("{}: there is no tokenizer.json, sentencepiece .model or tokenizer.bin in this folder",
                              folder.string()));
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& path) {
  try {
    if (!fs::exists(path)) throw FileError(fmt::format("{}: no such file or folder", path.string()));
    const fs::path file = fs::is_directory(path) ? file_in(path) : path;
    const std::string name = file.string();
    const std::string content = read_file(file);
    const auto extension = file.extension();
    if (extension == ".json") return from_json(content, name);
    if (extension == ".model") return load_sentencepiece(content, name, options_beside(file));
    if (extension == ".bin") return load_llama2c(content, name);
    throw FileError(fmt::format("{}: a tokenizer is a .json, .model or .bin file, or a folder with one", name));
  } catch (const fs::filesystem_error& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.code().message()));
  }
}

}  // namespace jerboa
