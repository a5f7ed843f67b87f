#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace jerboa {

/// Writes a file piece by piece, with the guarantees of write_file_atomically: `path` is replaced by commit() alone,
/// and everything is discarded without it. All members throw FileError.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace jerboa
