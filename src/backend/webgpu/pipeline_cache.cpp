#include "backend/webgpu/pipeline_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <memory>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/crc32.h"

namespace jerboa::webgpu {
namespace {

namespace fs = std::filesystem;

// A file consists of this word, the checksum of the rest, the length of the key, the key and the value.
constexpr std::uint32_t magic = 0x3150424a;  // "JBP1"
constexpr std::size_t header_bytes = 3 * sizeof(std::uint32_t);
constexpr std::string_view extension = ".pipeline";
constexpr auto noted_use = std::chrono::hours(24);  // how precisely the last use of an entry is recorded

std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return hash;
}

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

// The value, if the file is for this key.
std::optional<std::string> value_of(std::string_view file, std::string_view key) {
  if (file.size() < header_bytes || word_at(file, 0) != magic) return std::nullopt;
  const std::string_view rest = file.substr(2 * sizeof(std::uint32_t));
  if (word_at(file, 1) != crc32(rest) || word_at(file, 2) != key.size()) return std::nullopt;
  const std::string_view content = file.substr(header_bytes);
  if (content.substr(0, key.size()) != key) return std::nullopt;
  return std::string(content.substr(key.size()));
}

std::string file_for(std::string_view key, std::string_view value) {
  std::string rest(sizeof(std::uint32_t), '\0');
  const auto key_bytes = static_cast<std::uint32_t>(key.size());
  std::memcpy(rest.data(), &key_bytes, sizeof key_bytes);
  rest.append(key).append(value);
  const std::uint32_t words[] = {magic, crc32(rest)};
  std::string file(reinterpret_cast<const char*>(words), sizeof words);
  return file.append(rest);
}

// The entry whose size was requested last: it was read then, because only the whole file shows whether it is valid.
struct Asked {
  std::string key, value;
};
thread_local Asked asked;

// Replaces a file as a whole. Unlike write_file_atomically it does not wait for the disk: after a crash of the machine
// an entry may be damaged, which its checksum detects.
bool replace(const fs::path& path, std::string_view content) {
  static std::atomic<unsigned> counter = 0;
  const fs::path temporary = fmt::format("{}.{}-{}.tmp", path.string(), ::getpid(), counter++);
  std::error_code failed;
  {
    std::ofstream file(temporary, std::ios::binary);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!file.flush()) {
      file.close();
      fs::remove(temporary, failed);
      return false;
    }
  }
  fs::rename(temporary, path, failed);
  if (!failed) return true;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return false;
}

}  // namespace

PipelineCache::PipelineCache(fs::path folder, std::uint64_t most_bytes) : folder_(std::move(folder)) {
  std::error_code failed;
  if (fs::create_directories(folder_, failed))
    fs::permissions(folder_, fs::perms::owner_all, failed);  // entries are code: only the user may access them
  evict(most_bytes);
}

fs::path PipelineCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{:08x}{}", fnv1a(key), crc32(key), extension);
}

std::optional<std::string> PipelineCache::read(std::string_view key) const {
  const fs::path path = file_of(key);
  std::error_code failed;
  const auto used = fs::last_write_time(path, failed);
  if (failed) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  const std::string content(std::istreambuf_iterator<char>(file), {});
  auto value = value_of(content, key);
  const auto now = fs::file_time_type::clock::now();
  if (value && now - used > noted_use) fs::last_write_time(path, now, failed);
  return value;
}

std::size_t PipelineCache::size_of(std::string_view key) {
  auto value = read(key);
  const std::scoped_lock lock(mutex_);
  if (!value || value->empty()) {
    ++statistics_.misses;
    return 0;
  }
  asked = {std::string(key), std::move(*value)};
  return asked.value.size();
}

bool PipelineCache::load(std::string_view key, std::span<std::byte> value) {
  const Asked found = std::exchange(asked, {});
  if (found.key != key || found.value.size() != value.size()) return false;
  std::memcpy(value.data(), found.value.data(), value.size());
  const std::scoped_lock lock(mutex_);
  ++statistics_.hits;
  return true;
}

void PipelineCache::store(std::string_view key, std::span<const std::byte> value) {
  {
    const std::scoped_lock lock(mutex_);
    if (!writable_) return;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(value.data()), value.size());
  const bool stored = replace(file_of(key), file_for(key, bytes));
  const std::scoped_lock lock(mutex_);
  writable_ = stored;
  statistics_.stored += stored ? 1 : 0;
}

PipelineCache::Statistics PipelineCache::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

void PipelineCache::evict(std::uint64_t most_bytes) const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes = 0;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  std::error_code failed;
  for (fs::directory_iterator file(folder_, failed), end; !failed && file != end; file.increment(failed)) {
    if (file->path().extension() != extension) continue;
    std::error_code gone;
    Entry entry{file->last_write_time(gone), file->file_size(gone), file->path()};
    if (gone) continue;
    total += entry.bytes;
    entries.push_back(std::move(entry));
  }
  if (total <= most_bytes) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  // Well below the bound, so that not every start has to remove something.
  for (const Entry& entry : entries) {
    if (total <= most_bytes - most_bytes / 4) break;
    if (fs::remove(entry.path, failed)) total -= entry.bytes;
  }
}

PipelineCache& PipelineCache::shared(const fs::path& folder) {
  static std::mutex mutex;
  static auto& caches = *new std::map<fs::path, std::unique_ptr<PipelineCache>>();
  const std::scoped_lock lock(mutex);
  auto& cache = caches[folder];
  if (!cache) cache = std::make_unique<PipelineCache>(folder);
  return *cache;
}

std::optional<fs::path> default_pipeline_cache() {
  const auto from = [](const char* name) { return std::getenv(name); };
  if (const char* folder = from("JERBOA_CACHE"); folder != nullptr) {
    if (*folder == '\0') return std::nullopt;
    return fs::path(folder) / "pipelines";
  }
  if (const char* folder = from("XDG_CACHE_HOME"); folder != nullptr && *folder != '\0')
    return fs::path(folder) / "jerboa" / "pipelines";
  if (const char* home = from("HOME"); home != nullptr && *home != '\0')
    return fs::path(home) / ".cache" / "jerboa" / "pipelines";
  return std::nullopt;
}

}  // namespace jerboa::webgpu
