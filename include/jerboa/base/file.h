#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace jerboa {

/// A file that is open for reading. What is read is copied: a file that another process shortens meanwhile is an error
/// then, where touching the memory of a mapped file would end the process. One that is replaced by rename (as
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
  /// In bytes, when it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on; from several threads at once, if need be. Throws FileError where the file ends
  /// before that.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole content of a file, read into memory; the bytes stay where they are when the object is moved.
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

/// Writes the pieces, one after the other, as the whole content of `path`, replacing what was there.
/// Whatever happens, a reader sees the old file or the new one: the data goes to a temporary file in the same folder,
/// reaches the disk, and takes the name by rename. A failure (a full disk, say) throws FileError, leaves `path` as it
/// was and removes the temporary file; after a crash of the process that one may remain, as ".NAME.….tmp".
void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace jerboa
