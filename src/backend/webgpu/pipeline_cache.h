#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace jerboa::webgpu {

/// Compiled shaders and pipelines on disk, one file per entry, so that the second start of a program does not compile
/// them again. The WebGPU library makes the keys: they identify the device, its driver, the library's version and the
/// source. An entry that is damaged or belongs to another key is a miss; a read-only folder is used without storing.
/// Several threads and processes may share a folder.
class PipelineCache {
 public:
  /// If the folder contains more than `most_bytes` when it is opened, the least recently used entries are removed.
  explicit PipelineCache(std::filesystem::path folder, std::uint64_t most_bytes = std::uint64_t{1} << 30);

  /// The size of an entry, 0 if there is none.
  std::size_t size_of(std::string_view key);
  /// The content of the entry whose size this thread requested last, as the library does. Returns false if it was
  /// another one.
  bool load(std::string_view key, std::span<std::byte> value);
  void store(std::string_view key, std::span<const std::byte> value);

  struct Statistics {
    std::int64_t hits = 0, misses = 0, stored = 0;
  };
  Statistics statistics() const;

  /// The cache of a folder. It is never destroyed, because the library's threads may still use it as the process ends.
  static PipelineCache& shared(const std::filesystem::path& folder);

 private:
  std::filesystem::path file_of(std::string_view key) const;
  std::optional<std::string> read(std::string_view key) const;
  void evict(std::uint64_t most_bytes) const;

  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  Statistics statistics_;
  bool writable_ = true;
};

/// The default folder for pipelines: `pipelines` in JERBOA_CACHE or, if that is not set, in the user's cache folder.
/// None if JERBOA_CACHE is empty or there is no such folder.
std::optional<std::filesystem::path> default_pipeline_cache();

}  // namespace jerboa::webgpu
