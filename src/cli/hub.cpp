#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/download.h"
#include "cli/sources.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

struct HubName {
  std::string model, revision = "main", file;
};

HubName parse_hub_name(const std::string& text) {
  HubName name;
  std::string rest = text;
  if (const auto at = rest.find('@'); at != std::string::npos) {
    name.revision = rest.substr(at + 1);
    rest.erase(at);
  }
  const auto first = rest.find('/');
  const auto second = first == std::string::npos ? first : rest.find('/', first + 1);
  name.model = rest.substr(0, second);
  if (second != std::string::npos) name.file = rest.substr(second + 1);
  const auto is_plain = [](std::string_view part) {
    return !part.empty() && part.find("..") == std::string_view::npos && part[0] != '/' &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == '/';
           });
  };
  if (first == std::string::npos || !is_plain(name.model) || name.model.back() == '/' || !is_plain(name.revision) ||
      (second != std::string::npos && !is_plain(name.file)))
    throw BadArguments(fmt::format("hf:{} is not a model's name; it is written hf:ORG/MODEL", text));
  return name;
}

struct HubFile {
  std::string name, hash;
  bool is_git_hash = false;
};

// What a model needs: weights, tokenizer, configurations and templates.
bool is_wanted(const std::string& name) {
  static const std::set<std::string> others{"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"};
  if (name.find('/') != std::string::npos) return false;
  return name.ends_with(".safetensors") || name.ends_with("config.json") || name.ends_with(".safetensors.index.json") ||
         name.starts_with("tokenizer") || name == "special_tokens_map.json" || name == "chat_template.json" ||
         others.contains(name);
}

std::vector<HubFile> choose_files(const nlohmann::json& listing, const HubName& name) {
  std::vector<HubFile> files;
  std::vector<std::string> ggufs;
  bool has_weights = false;
  for (const auto& sibling : listing.at("siblings")) {
    const std::string file = sibling.at("rfilename");
    if (file.find("..") != std::string::npos || file.starts_with('/')) continue;
    if (file.ends_with(".gguf")) ggufs.push_back(file);
    if (name.file.empty() ? !is_wanted(file) && !file.ends_with(".gguf") : file != name.file) continue;
    has_weights = has_weights || file.ends_with(".safetensors");
    if (sibling.contains("lfs") && sibling["lfs"].is_object())
      files.push_back({file, sibling["lfs"].at("sha256"), false});
    else
      files.push_back({file, sibling.at("blobId"), true});
  }
  if (!name.file.empty()) {
    if (files.empty()) throw Error(fmt::format("hf:{} has no file {}", name.model, name.file));
    return files;
  }
  if (has_weights || ggufs.size() == 1) {
    if (has_weights) std::erase_if(files, [](const HubFile& file) { return file.name.ends_with(".gguf"); });
    return files;
  }
  if (ggufs.empty()) throw Error(fmt::format("hf:{} has neither safetensors nor a .gguf file", name.model));
  throw Error(fmt::format("hf:{} has {} .gguf files; name one of them, e.g. hf:{}/{}", name.model, ggufs.size(),
                          name.model, ggufs[0]));
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void check_hub_name(const std::string& name) { parse_hub_name(name); }

void fetch_hub(const std::string& text, const fs::path& to) {
  const HubName name = parse_hub_name(text);
  std::string endpoint = environment("HF_ENDPOINT");
  const std::string token = environment("HF_TOKEN");
  if (endpoint.empty()) throw UsageError("hf: needs the hub's address; set HF_ENDPOINT to it");
  while (endpoint.ends_with('/')) endpoint.pop_back();
  std::vector<HubFile> files;
  std::string commit;
  try {
    const Waiting waiting(fmt::format("looking for {}", name.model));
    const auto listing = nlohmann::json::parse(
        fetch_text(fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint, name.model, name.revision), token));
    commit = listing.value("sha", name.revision);
    files = choose_files(listing, name);
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("{} did not answer with a list of the files of {}; is it a hub?", endpoint, name.model));
  }
  // The large ones last, so that a mistake is found early.
  std::stable_sort(files.begin(), files.end(),
                   [](const HubFile& a, const HubFile& b) { return a.is_git_hash > b.is_git_hash; });
  for (const HubFile& file : files)
    download({.url = fmt::format("{}/{}/resolve/{}/{}", endpoint, name.model, commit, file.name),
              .to = to / fs::path(file.name).filename(),
              .label = file.name,
              .hash = file.hash,
              .method = Hash::sha256,
              .is_git_hash = file.is_git_hash,
              .token = token});
}

}  // namespace jerboa::cli
