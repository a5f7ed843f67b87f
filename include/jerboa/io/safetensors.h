#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/file.h>
#include <jerboa/io/tensor_view.h>

namespace jerboa {

/// The tensors of a safetensors file or of a sharded checkpoint, mapped into memory: opening reads the headers only.
///
///     auto weights = SafeTensors::open("Qwen3-0.6B");
///     std::vector<float> norm = to_f32(weights.view("model.norm.weight"));
///
/// A malformed file is refused when it is opened, with a FileError that says what is wrong, in which file and tensor.
class SafeTensors {
 public:
  using Metadata = std::map<std::string, std::string>;

  /// `path` is a .safetensors file, an index (.json) of shards beside it, or a folder that holds model.safetensors or
  /// model.safetensors.index.json. Of a sharded checkpoint one sees the tensors that the index lists.
  static SafeTensors open(const std::filesystem::path& path);

  /// In alphabetical order.
  std::vector<std::string> names() const;
  std::size_t size() const { return tensors_.size(); }
  bool contains(std::string_view name) const { return tensors_.contains(name); }
  /// Valid as long as this object, or one that it was moved to, lives. Throws UsageError for an unknown name.
  const TensorView& view(std::string_view name) const;
  /// The file's `__metadata__`; of shards, all of theirs together.
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit SafeTensors(std::filesystem::path path) : path_(std::move(path)) {}
  void add_file(const std::filesystem::path& file);
  void add_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  Metadata metadata_;
};

/// Writes a safetensors file, atomically (see write_file_atomically), with every tensor aligned to its element size.
/// The tensors may be views of the very file that is replaced. Throws UsageError for tensors that no file can hold (a
/// name used twice, bytes that do not fit the shape) and FileError when writing fails.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                       const SafeTensors::Metadata& metadata = {});

}  // namespace jerboa
