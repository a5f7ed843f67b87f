#include "models/temporary_folder.h"

#include <cerrno>
#include <charconv>
#include <csignal>
#include <fmt/format.h>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <jerboa/base/error.h>

namespace jerboa::models {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view suffix = ".tmp";

std::string prefix_of(const fs::path& target) { return fmt::format(".{}.", target.filename().string()); }

// A process that was killed leaves its folder behind, which may be as large as a model.
void remove_abandoned(const fs::path& target) {
  std::error_code ignored;
  const std::string prefix = prefix_of(target);
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) continue;
    const std::string_view number = std::string_view(name).substr(prefix.size());
    pid_t process = 0;
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), process);
    const bool is_number = failure == std::errc() && std::string_view(end) == suffix && process > 0;
    if (is_number && ::kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder(const fs::path& target)
    // A trailing slash would leave no name to write beside.
    : target_(target.has_filename() ? target : target.parent_path()) {
  std::error_code error;
  if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error)))
    throw UsageError(fmt::format("{} already exists; remove it, or choose another folder", target_.string()));
  if (target_.has_parent_path()) fs::create_directories(target_.parent_path(), error);
  remove_abandoned(target_);
  path_ = target_;
  path_.replace_filename(fmt::format("{}{}{}", prefix_of(target_), ::getpid(), suffix));
  if (!fs::create_directory(path_, error)) {
    const std::string reason = error ? error.message() : "it exists already";
    throw FileError(fmt::format("{}: cannot create this folder: {}", std::exchange(path_, {}).string(), reason));
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void TemporaryFolder::take_name() {
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) throw FileError(fmt::format("{}: cannot create: {}", target_.string(), error.message()));
  path_.clear();
}

}  // namespace jerboa::models
