#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/text/tokenizer.h>

#include "base/parse_json.h"
#include "text/sentencepiece.h"

namespace jerboa {
namespace {

namespace fs = std::filesystem;

// The settings for beginning-of-sequence and end-of-sequence tokens in a tokenizer_config.json, if it has any.
SentencePieceOptions options_in(std::string_view config_text, const std::string& config_name) {
  SentencePieceOptions options;
  if (config_text.empty()) return options;
  const auto config = parse_json(config_text, config_name);
  if (!config.is_object()) throw FileError(fmt::format("{}: not a JSON object", config_name));
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

Tokenizer Tokenizer::from_file(std::string_view content, const std::string& name, std::string_view config_text,
                               const std::string& config_name) {
  if (name.ends_with(".json")) return from_json(content, name);
  if (name.ends_with(".model")) return load_sentencepiece(content, name, options_in(config_text, config_name));
  if (name.ends_with(".bin")) return load_llama2c(content, name);
  throw FileError(fmt::format("{}: a tokenizer is a .json, .model or .bin file, or a folder with one", name));
}

Tokenizer Tokenizer::load(const fs::path& path) {
  try {
    if (!fs::exists(path)) throw FileError(fmt::format("{}: no such file or folder", path.string()));
    const fs::path file = fs::is_directory(path) ? file_in(path) : path;
    const FileContent content(file);
    const fs::path config = file.parent_path() / "tokenizer_config.json";
    if (file.extension() != ".model" || !fs::is_regular_file(config)) return from_file(content.text(), file.string());
    return from_file(content.text(), file.string(), FileContent(config).text(), config.string());
  } catch (const fs::filesystem_error& error) {
    throw FileError(fmt::format("{}: {}", path.string(), error.code().message()));
  }
}

}  // namespace jerboa
