#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace jerboa {

/// A file that is open for reading. Contents are copied, not mapped: if another process truncates the file during
/// reading, that reports an error instead of ending the process with SIGBUS. A file that is replaced by rename (as
/// write_file_atomically does) stays readable.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// In bytes, at the time the file was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `bytes`, starting at `offset`; may be called from several threads at once. Throws FileError if the file ends
  /// too early.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole content of a file, read into memory; the bytes keep their address when the object is moved.
class FileContent {
 public:
  explicit FileContent(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
};

/// Writes the pieces, one after the other, as the whole content of `path`, replacing any previous content. A reader
/// always sees either the old file or the new one: the data goes to a temporary file in the same folder, is flushed to
/// disk, and is renamed to `path`. A failure (such as a full disk) throws FileError, leaves `path` as it was and
/// removes the temporary file; if the process crashes, the temporary file may remain, as ".NAME.….tmp".
void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace jerboa
