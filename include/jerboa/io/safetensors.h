#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/tensor_source.h>
#include <jerboa/io/tensor_view.h>

namespace jerboa {

/// The tensors of a safetensors file or of a sharded checkpoint. Opening reads the headers only.
///
///     auto weights = SafeTensors::open("Qwen3-0.6B");
///     std::vector<float> norm = to_f32(weights.view("model.norm.weight"));
///
/// A malformed file is refused when it is opened, with a FileError that names the problem, the file and the tensor. If
/// another process truncates the file later, the error comes when a missing tensor is read.
class SafeTensors final : public TensorSource {
 public:
  /// `path` is a .safetensors file, an index (.json) of shards beside it, or a folder that holds model.safetensors or
  /// model.safetensors.index.json. A sharded checkpoint has the tensors that its index lists.
  static SafeTensors open(const std::filesystem::path& path);
  /// A file in memory, which must outlive this object. Errors call it `name`.
  static SafeTensors from_bytes(std::span<const std::byte> bytes, const std::string& name = "model.safetensors");

  SafeTensors(SafeTensors&&) noexcept;
  SafeTensors& operator=(SafeTensors&&) noexcept;
  ~SafeTensors() override;

  std::vector<std::string> names() const override;
  std::size_t size() const;
  bool contains(std::string_view name) const override;
  const TensorEntry& entry(std::string_view name) const override;
  /// The tensor, read on first use and then cached. The view is valid for the lifetime of this object, or of the one it
  /// is moved to. Throws UsageError for an unknown name.
  const TensorView& view(std::string_view name) const;
  void read(std::string_view name, std::span<std::byte> bytes) const override;
  void read_f32(std::string_view name, std::span<float> values) const override;
  bool reads_parts(std::string_view) const override { return true; }
  /// The file's `__metadata__`; for shards, merged from all of them.
  const Metadata& metadata() const override;
  const std::filesystem::path& path() const override;

 private:
  struct Content;
  explicit SafeTensors(std::filesystem::path path);

  void read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const override;

  std::unique_ptr<Content> content_;
};

/// Writes a safetensors file, atomically (see write_file_atomically), with every tensor aligned to its element size.
/// The tensors may be views into the file being replaced. Throws UsageError for tensors that no file can hold (a name
/// used twice, bytes that do not fit the shape) and FileError when writing fails.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafeTensors::Metadata& metadata = {});
/// The bytes of such a file.
std::vector<std::byte> encode_safetensors(std::span<const TensorView> tensors,
                                          const SafeTensors::Metadata& metadata = {});

}  // namespace jerboa
