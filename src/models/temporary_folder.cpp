#include "models/temporary_folder.h"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <fmt/format.h>
#include <random>
#include <string_view>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <jerboa/base/error.h>

namespace jerboa::models {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view suffix = ".tmp", digits = "0123456789abcdef";
constexpr int max_attempts = 16;

std::string prefix_of(const fs::path& target) { return fmt::format(".{}.", target.filename().string()); }

bool is_temporary_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size())
    return false;
  const std::string_view number = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  return number.find_first_not_of(digits) == std::string_view::npos;
}

}  // namespace

TemporaryFolder::Lock::Lock(const fs::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
  if (descriptor_ < 0 || ::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  is_held_by_another_ = errno == EWOULDBLOCK;
  ::close(std::exchange(descriptor_, -1));
}
TemporaryFolder::Lock::Lock(Lock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), is_held_by_another_(other.is_held_by_another_) {}
TemporaryFolder::Lock& TemporaryFolder::Lock::operator=(Lock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(is_held_by_another_, other.is_held_by_another_);
  return *this;
}
TemporaryFolder::Lock::~Lock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TemporaryFolder::TemporaryFolder(const fs::path& target)
    // With a trailing slash, filename() would be empty.
    : target_(target.has_filename() ? target : target.parent_path()) {
  std::error_code error;
  if (fs::exists(target_, error) && !(fs::is_directory(target_, error) && fs::is_empty(target_, error)))
    throw UsageError(fmt::format("{} already exists; remove it, or choose another folder", target_.string()));
  if (target_.has_parent_path()) fs::create_directories(target_.parent_path(), error);
  remove_abandoned();
  for (int attempt = 0; attempt < max_attempts; ++attempt)
    if (make_folder()) return;
  throw FileError(fmt::format("{}: cannot create a folder beside it", target_.string()));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

// A killed process leaves its folder behind, which may be as large as a model, but its lock is released.
void TemporaryFolder::remove_abandoned() const {
  std::error_code ignored;
  const std::string prefix = prefix_of(target_);
  const fs::path parent = target_.has_parent_path() ? target_.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!is_temporary_name(entry.path().filename().string(), prefix)) continue;
    if (const Lock lock(entry.path()); lock.is_held()) fs::remove_all(entry.path(), ignored);
  }
}

// False if another process removed the folder as abandoned before it was locked.
bool TemporaryFolder::make_folder() {
  std::random_device random;
  const std::uint64_t number = (std::uint64_t{random()} << 32) | random();
  const fs::path made =
      fs::path(target_).replace_filename(fmt::format("{}{:016x}{}", prefix_of(target_), number, suffix));
  std::error_code error;
  if (!fs::create_directory(made, error)) {
    if (!error) return false;
    throw FileError(fmt::format("{}: cannot create this folder: {}", made.string(), error.message()));
  }
  lock_ = Lock(made);
  if (lock_.is_held_by_another() || !fs::is_directory(made, error)) return false;
  path_ = made;
  return true;
}

void TemporaryFolder::take_name() {
  std::error_code error;
  fs::rename(path_, target_, error);
  if (error) throw FileError(fmt::format("{}: cannot create: {}", target_.string(), error.message()));
  path_.clear();
}

}  // namespace jerboa::models
