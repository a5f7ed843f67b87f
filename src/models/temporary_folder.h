#pragma once

#include <filesystem>

namespace jerboa::models {

/// A new folder beside the target; removed unless it takes the target's place, so that the target appears whole or not
/// at all. Those that processes which are gone left there are removed too. Throws UsageError if there is something else
/// in the target's place.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& target);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void take_name();

 private:
  std::filesystem::path target_, path_;
};

}  // namespace jerboa::models
