#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include <jerboa/base/file.h>

namespace jerboa::io {

/// The source of a file's bytes: the file, or memory owned by the caller.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) const = 0;
  /// The bytes in place, if they are in memory permanently.
  virtual std::optional<std::span<const std::byte>> in_place(std::uint64_t offset, std::size_t bytes) const = 0;
};

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : file_(path) {}
  std::uint64_t size() const override { return file_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override { file_.read(offset, bytes); }
  std::optional<std::span<const std::byte>> in_place(std::uint64_t, std::size_t) const override { return {}; }

 private:
  FileReader file_;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    const auto from = bytes_.subspan(offset, bytes.size());
    std::copy(from.begin(), from.end(), bytes.begin());
  }
  std::optional<std::span<const std::byte>> in_place(std::uint64_t offset, std::size_t bytes) const override {
    return bytes_.subspan(offset, bytes);
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace jerboa::io
