#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/base/dtype.h>
#include <jerboa/io/tensor_view.h>

namespace jerboa {

/// The description of a tensor in a file.
struct TensorEntry {
  StoredType type = StoredType::F32;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / size_of(type); }
};

/// Named tensors that are read one at a time: those of a safetensors checkpoint, or of a GGUF file under Hugging Face's
/// names.
class TensorSource {
 public:
  using Metadata = std::map<std::string, std::string>;

  TensorSource() = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;
  virtual ~TensorSource() = default;

  /// In alphabetical order.
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(std::string_view name) const = 0;
  /// The members below throw UsageError for an unknown name.
  virtual const TensorEntry& entry(std::string_view name) const = 0;
  /// Copies a tensor's bytes, in the type of its entry, into a span of exactly that size.
  virtual void read(std::string_view name, std::span<std::byte> bytes) const = 0;
  /// Copies some of a tensor's bytes, from the byte `from` on. Throws UsageError if it has fewer.
  void read_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const;
  /// Whether parts made of whole blocks of 256 elements can be read without the rest of the tensor, also from several
  /// threads at once.
  virtual bool reads_parts(std::string_view /*name*/) const { return false; }
  /// The same as read, with the values converted as to_f32 does.
  virtual void read_f32(std::string_view name, std::span<float> values) const = 0;
  /// Reads a matrix in the quantised form of int8 or int4 weights (DType), if it is stored in matching groups: the
  /// weights and one f16 scale per group and, for int4, one f16 minimum. Integers and scales are the stored ones; a
  /// minimum is rounded to f16 if necessary. Returns false, with undefined contents in the spans, if the matrix is
  /// stored differently.
  virtual bool read_quantised(std::string_view /*name*/, DType /*dtype*/, std::span<std::byte> /*weights*/,
                              std::span<std::uint16_t> /*scales*/, std::span<std::uint16_t> /*mins*/) const {
    return false;
  }
  /// The file's metadata.
  virtual const Metadata& metadata() const {
    static const Metadata none;
    return none;
  }
  /// Where the tensors come from, for messages.
  virtual const std::filesystem::path& path() const = 0;

 protected:
  /// Reads bytes of a tensor that are known to exist. Unless overridden it reads the whole tensor.
  virtual void read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const;
};

}  // namespace jerboa
