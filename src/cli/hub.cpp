#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/download.h"
#include "cli/sources.h"
#include "cli/terminal.h"
#include "models/folder_files.h"

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
  if (!name.file.empty() && !name.file.ends_with(".gguf"))
    throw BadArguments(
        fmt::format("hf:{}: a single file of a model must be a .gguf file; hf:{} names all of it", text, name.model));
  return name;
}

struct HubFile {
  std::string name, hash;
  bool is_git_hash = false;
};

// Parses a hub's list of files. Throws nlohmann's exceptions if it is malformed.
std::vector<HubFile> read_listing(const nlohmann::json& listing) {
  std::vector<HubFile> files;
  for (const auto& sibling : listing.at("siblings")) {
    const std::string file = sibling.at("rfilename");
    if (file.find("..") != std::string::npos || file.starts_with('/')) continue;
    if (sibling.contains("lfs") && sibling["lfs"].is_object())
      files.push_back({file, sibling["lfs"].at("sha256"), false});
    else
      files.push_back({file, sibling.at("blobId"), true});
  }
  return files;
}

std::vector<HubFile> only_gguf(const std::vector<HubFile>& files, const HubName& name) {
  std::vector<HubFile> found;
  std::vector<std::string> names;
  for (const HubFile& file : files) {
    if (!file.name.ends_with(".gguf")) continue;
    names.push_back(file.name);
    if (name.file.empty() || file.name == name.file) found.push_back(file);
  }
  if (found.size() == 1) return found;
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  if (!name.file.empty())
    throw Error(fmt::format("hf:{} has no file {}{}", name.model, name.file, names.empty() ? "" : "; it has " + list));
  if (names.empty()) throw Error(fmt::format("hf:{} has neither safetensors nor a .gguf file", name.model));
  throw Error(fmt::format("hf:{} has {} .gguf files; name one of them, as hf:{}/{}: {}", name.model, names.size(),
                          name.model, names[0], list));
}

// The files of a model and of its modules' folders; a single .gguf file if there are no safetensors.
std::vector<HubFile> choose_files(const std::vector<HubFile>& files, const HubName& name,
                                  const std::vector<std::string>& modules) {
  if (!name.file.empty()) return only_gguf(files, name);
  std::vector<HubFile> chosen;
  bool has_weights = false;
  for (const HubFile& file : files) {
    const fs::path path = file.name;
    const std::string folder = path.parent_path().string(), last = path.filename().string();
    const bool is_here = folder.empty() || std::find(modules.begin(), modules.end(), folder) != modules.end();
    if (!is_here || !is_model_file(last)) continue;
    has_weights = has_weights || last.ends_with(".safetensors");
    chosen.push_back(file);
  }
  return has_weights ? chosen : only_gguf(files, name);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A model on a hub.
class HubModel {
 public:
  HubModel(HubName name, fs::path to) : name_(std::move(name)), to_(std::move(to)) {
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
  }

  std::vector<std::string> fetch() {
    const std::vector<HubFile> all = list();
    std::vector<HubFile> files = choose_files(all, name_, modules(all));
    // Small files come first, so that a mistake is found early.
    std::stable_sort(files.begin(), files.end(),
                     [](const HubFile& a, const HubFile& b) { return a.is_git_hash > b.is_git_hash; });
    std::vector<std::string> places;
    for (const HubFile& file : files) places.push_back(fetch(file));
    return places;
  }

 private:
  std::vector<HubFile> list() {
    const Waiting waiting(fmt::format("looking for {}", name_.model));
    const std::string url =
        fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint_, name_.model, name_.revision);
    const std::string answer = fetch_text({.url = url, .token = token_, .denied_help = token_help});
    try {
      const auto listing = nlohmann::json::parse(answer);
      commit_ = listing.value("sha", name_.revision);
      return read_listing(listing);
    } catch (const nlohmann::json::exception&) {
      throw Error(
          fmt::format("{} did not answer with a list of the files of {}; is it a hub?", endpoint_, name_.model));
    }
  }

  // The folders that modules.json names; other files are chosen by them.
  std::vector<std::string> modules(const std::vector<HubFile>& all) const {
    for (const HubFile& file : all)
      if (file.name == "modules.json" && name_.file.empty()) {
        fetch(file);
        return models::module_folders(to_);
      }
    return {};
  }

  // Fetches a file and returns its path in the folder; a .gguf file is stored directly in it.
  std::string fetch(const HubFile& file) const {
    const fs::path path = file.name;
    const std::string place = (path.extension() == ".gguf" ? path.filename() : path).string();
    const std::string url = fmt::format("{}/{}/resolve/{}/{}", endpoint_, name_.model, commit_, file.name);
    download({.from = {.url = url, .token = token_, .denied_help = token_help},
              .to = to_ / place,
              .label = file.name,
              .hash = file.hash,
              .method = Hash::sha256,
              .is_git_hash = file.is_git_hash});
    return place;
  }

  static constexpr const char* token_help = "; set HF_TOKEN to a token";

  HubName name_;
  fs::path to_;
  std::string endpoint_ = environment("HF_ENDPOINT"), token_ = environment("HF_TOKEN"), commit_;
};

}  // namespace

void check_hub(const std::string& name) {
  parse_hub_name(name);
  if (environment("HF_ENDPOINT").empty()) throw BadArguments("hf: needs the hub's address; set HF_ENDPOINT to it");
}

std::vector<std::string> fetch_hub(const std::string& name, const fs::path& to) {
  return HubModel(parse_hub_name(name), to).fetch();
}

}  // namespace jerboa::cli
