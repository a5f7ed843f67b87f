#include "cli/vector_files.h"

#include <array>
#include <fmt/format.h>

#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>

namespace jerboa::cli {
namespace {

// The header of NumPy's format 1.0, padded so that it ends with a line break at a multiple of 64 bytes.
std::string npy_header(const Embeddings& vectors) {
  constexpr std::size_t alignment = 64, before_text = 10;
  std::string text =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", vectors.count, vectors.dimensions);
  const std::size_t unpadded = before_text + text.size() + 1;
  text.append((alignment - unpadded % alignment) % alignment, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  const std::array<char, 2> bytes{static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  return std::string("\x93NUMPY\x01\x00", 8) + std::string(bytes.data(), bytes.size()) + text;
}

}  // namespace

void write_vectors(const std::filesystem::path& path, const Embeddings& vectors) {
  const std::span<const float> values(vectors.values);
  if (path.extension() == ".safetensors") {
    const std::array views{view_of("embeddings", {vectors.count, vectors.dimensions}, values)};
    return write_safetensors(path, views);
  }
  const std::string header = path.extension() == ".npy" ? npy_header(vectors) : "";
  const std::array<std::span<const std::byte>, 2> pieces{std::as_bytes(std::span(header)), std::as_bytes(values)};
  write_file_atomically(path, pieces);
}

}  // namespace jerboa::cli
