#include "cli/model_record.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "cli/hash.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace

ModelRecord read_record(const StoredModel& model) {
  const fs::path path = model.folder / record_name;
  try {
    const auto json = nlohmann::ordered_json::parse(FileContent(path).text());
    ModelRecord record{json.at("source"), json.at("time"), {}};
    for (const auto& file : json.at("files"))
      record.files.push_back({file.at("path"), file.at("sha256"), file.at("bytes").get<std::int64_t>()});
    return record;
  } catch (const nlohmann::json::exception& error) {
    throw FileError(fmt::format("{}: not a model's record; jerboa rm {} and pull it again", path.string(), model.name));
  }
}

nlohmann::ordered_json to_json(const ModelRecord& record) {
  nlohmann::ordered_json json{
      {"source", record.source}, {"time", record.time}, {"files", nlohmann::ordered_json::array()}};
  for (const ModelRecord::File& file : record.files)
    json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  return json;
}

void write_record(const fs::path& folder, const std::string& source) {
  ModelRecord record{source, time_now(), {}};
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      record.files.push_back({fs::relative(entry.path(), folder).string(), hash_file(entry.path(), Hash::sha256),
                              static_cast<std::int64_t>(entry.file_size())});
  std::sort(record.files.begin(), record.files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  write_file_atomically(folder / record_name, to_json(record).dump(1) + "\n");
}

std::int64_t folder_bytes(const fs::path& folder) {
  std::int64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored))
    if (entry.is_regular_file(ignored)) bytes += static_cast<std::int64_t>(entry.file_size(ignored));
  return bytes;
}

}  // namespace jerboa::cli
