#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <jerboa/io/gguf.h>

#include "io/byte_source.h"

// A GGUF file has a fixed beginning (magic, version, two counts), metadata, the tensors' descriptions, and their data
// at aligned offsets. All numbers are little-endian, and strings have a 64-bit length. The header's length is not
// recorded.
namespace jerboa::io {

/// The type of a metadata value, as in the file.
enum class GgufKind : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

/// A metadata value, which stays in the header's bytes: a number or a boolean at `offset`, a text there with its
/// length, or `count` contiguous values of one kind.
struct GgufValue {
  GgufKind kind = GgufKind::u8;  ///< of an array's elements
  bool is_array = false;
  std::uint64_t count = 1;
  std::uint64_t offset = 0;
};

struct GgufLayout {
  std::vector<std::byte> header;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::map<std::string, GgufTensor, std::less<>> tensors;
};

/// Reads and checks all of a header; throws FileError, with a message that starts with `file`.
GgufLayout parse_gguf(const ByteSource& source, const std::string& file);

/// Bytes of a number or boolean; 0 for texts and arrays.
std::size_t size_of(GgufKind kind);

/// The type that ggml gives this number, if it can be read.
std::optional<GgmlType> ggml_type(std::uint32_t number);
/// The names of all of them.
std::vector<std::string_view> ggml_type_names();

}  // namespace jerboa::io
