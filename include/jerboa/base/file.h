#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace jerboa {

/// A whole file, mapped read-only; the bytes stay where they are when the object is moved.
/// A file that is replaced by rename (as write_file_atomically does) stays readable through an earlier mapping; one
/// that another process truncates in place does not, and reading it then ends the process.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

/// Writes the pieces, one after the other, as the whole content of `path`, replacing what was there.
/// Whatever happens, a reader sees the old file or the new one: the data goes to a temporary file in the same folder,
/// reaches the disk, and takes the name by rename. A failure (a full disk, say) throws FileError, leaves `path` as it
/// was and removes the temporary file; after a crash of the process that one may remain, as ".NAME.….tmp".
void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

}  // namespace jerboa
