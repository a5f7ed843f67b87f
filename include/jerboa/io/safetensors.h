#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/tensor_view.h>

namespace jerboa {

/// What a file says about a tensor.
struct TensorEntry {
  StoredType type = StoredType::F32;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / size_of(type); }
};

/// The tensors of a safetensors file or of a sharded checkpoint. Opening reads the headers only.
///
///     auto weights = SafeTensors::open("Qwen3-0.6B");
///     std::vector<float> norm = to_f32(weights.view("model.norm.weight"));
///
/// A malformed file is refused when it is opened, with a FileError that says what is wrong, in which file and tensor;
/// one that another process shortens later, when a tensor is read that is not there any more.
class SafeTensors {
 public:
  using Metadata = std::map<std::string, std::string>;

  /// `path` is a .safetensors file, an index (.json) of shards beside it, or a folder that holds model.safetensors or
  /// model.safetensors.index.json. Of a sharded checkpoint one sees the tensors that the index lists.
  static SafeTensors open(const std::filesystem::path& path);
  /// A file in memory, which must outlive this object. `name` stands for it in errors.
  static SafeTensors from_bytes(std::span<const std::byte> bytes, const std::string& name = "model.safetensors");

  SafeTensors(SafeTensors&&) noexcept;
  SafeTensors& operator=(SafeTensors&&) noexcept;
  ~SafeTensors();

  /// In alphabetical order.
  std::vector<std::string> names() const;
  std::size_t size() const;
  bool contains(std::string_view name) const;
  /// The members below throw UsageError for an unknown name.
  const TensorEntry& entry(std::string_view name) const;
  /// The tensor, which is read when it is first asked for and kept. Valid as long as this object, or one that it was
  /// moved to, lives.
  const TensorView& view(std::string_view name) const;
  /// Copies a tensor's bytes, of which there must be as many, without keeping them.
  void read(std::string_view name, std::span<std::byte> bytes) const;
  /// The same, converted as to_f32 does.
  void read_f32(std::string_view name, std::span<float> values) const;
  /// The file's `__metadata__`; of shards, all of theirs together.
  const Metadata& metadata() const;
  const std::filesystem::path& path() const;

 private:
  struct Content;
  explicit SafeTensors(std::filesystem::path path);

  std::unique_ptr<Content> content_;
};

/// Writes a safetensors file, atomically (see write_file_atomically), with every tensor aligned to its element size.
/// The tensors may be views of the very file that is replaced. Throws UsageError for tensors that no file can hold (a
/// name used twice, bytes that do not fit the shape) and FileError when writing fails.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafeTensors::Metadata& metadata = {});
/// The bytes of such a file.
std::vector<std::byte> encode_safetensors(std::span<const TensorView> tensors,
                                          const SafeTensors::Metadata& metadata = {});

}  // namespace jerboa
