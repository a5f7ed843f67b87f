#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/store.h"

namespace jerboa::cli {

/// The store's record of a model: jerboa.json in its folder.
struct ModelRecord {
  struct File {
    std::string path, sha256;
    std::int64_t bytes = 0;
  };
  std::string source;  ///< as it was pulled: "npm:PACKAGE@VERSION", "hf:ORG/MODEL", a path
  std::string time;
  std::vector<File> files;
};

/// Throws FileError if the record is missing or malformed.
ModelRecord read_record(const StoredModel& model);
nlohmann::ordered_json to_json(const ModelRecord& record);
/// Hashes the files of a folder and writes its record.
void write_record(const std::filesystem::path& folder, const std::string& source);

std::int64_t folder_bytes(const std::filesystem::path& folder);

}  // namespace jerboa::cli
