#pragma once

#include <filesystem>

namespace jerboa::models {

/// A new folder beside the target. It is removed unless it takes the target's place, so that the target appears whole
/// or not at all. Folders that dead processes left there are removed, too. Throws UsageError if something else is in
/// the target's place.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& target);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void take_name();

 private:
  /// A lock on a folder in use. A process id would not do: on a volume that containers share, it may belong to another
  /// process.
  class Lock {
   public:
    Lock() = default;
    /// Locks the folder, unless another process holds the lock or the file system has no locks.
    explicit Lock(const std::filesystem::path& folder);
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&& other) noexcept;
    ~Lock();
    bool is_held() const { return descriptor_ >= 0; }
    bool is_held_by_another() const { return is_held_by_another_; }

   private:
    int descriptor_ = -1;
    bool is_held_by_another_ = false;
  };

  void remove_abandoned() const;
  bool make_folder();

  std::filesystem::path target_, path_;
  Lock lock_;
};

}  // namespace jerboa::models
