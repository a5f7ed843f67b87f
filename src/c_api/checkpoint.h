#pragma once

#include <map>
#include <string>
#include <string_view>

#include <jerboa/io/tensor_source.h>

namespace jerboa::c_api {

/// The tensors of a checkpoint whose headers are known; some of them are in memory.
class Checkpoint final : public TensorSource {
 public:
  struct Place {
    std::string file;
    std::uint64_t begin = 0;  ///< in the file
  };

  /// Adds a safetensors file, given its beginning up to the end of the header, and its size. Throws FileError if it is
  /// malformed, or if another file has one of its tensors.
  void add_file(const std::string& name, std::string_view header, std::uint64_t file_bytes);
  const Place& place(const std::string& tensor) const { return tensors_.at(tensor).place; }
  /// The same tensors, with these ones in memory; `rows`, if positive, is their current number of rows. The bytes must
  /// outlive the result.
  Checkpoint holding(const std::map<std::string, std::string_view>& bytes, std::int64_t rows) const;

  std::vector<std::string> names() const override;
  bool contains(std::string_view name) const override { return tensors_.contains(name); }
  const TensorEntry& entry(std::string_view name) const override { return find(name).entry; }
  void read(std::string_view name, std::span<std::byte> bytes) const override;
  void read_f32(std::string_view name, std::span<float> values) const override;
  const Metadata& metadata() const override { return metadata_; }
  const std::filesystem::path& path() const override { return path_; }

 private:
  struct Held {
    TensorEntry entry;
    Place place;
    std::string_view bytes = {};
  };
  const Held& find(std::string_view name) const;
  TensorView view(std::string_view name) const;

  std::map<std::string, Held, std::less<>> tensors_;
  Metadata metadata_;
  std::filesystem::path path_ = "the checkpoint";
};

}  // namespace jerboa::c_api
