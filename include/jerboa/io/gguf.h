#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

/// The tensor types of GGUF files, as ggml numbers them. All but the first two and BF16 store blocks of 32 or 256
/// values with shared scales.
enum class GgmlType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  BF16 = 30,
};

/// "Q4_K"
std::string_view to_string(GgmlType type);
/// The number of consecutive values that are stored together, and the bytes they take: 256 and 144 for Q4_K.
std::size_t block_values(GgmlType type);
std::size_t block_bytes(GgmlType type);

/// The values of whole blocks, bit for bit as ggml computes them in f32.
void dequantise(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);

/// The description of a tensor in a GGUF file.
struct GgufTensor {
  GgmlType type = GgmlType::F32;
  std::vector<std::int64_t> shape;  ///< outermost axis first, as elsewhere; the file lists the innermost first
  std::uint64_t offset = 0;         ///< from the beginning of the file
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / block_bytes(type) * block_values(type); }
};

/// A GGUF file: metadata and tensors. Opening reads the header only, and refuses a malformed one with a FileError that
/// names the problem and the file, key or tensor, before anything that it asks for is allocated.
///
///     const auto file = Gguf::open("TinyLlama-1.1B.Q4_K_M.gguf");
///     const std::string architecture = file.text("general.architecture");
class Gguf {
 public:
  static Gguf open(const std::filesystem::path& path);
  /// A file in memory, which must outlive this object. Errors call it `name`.
  static Gguf from_bytes(std::span<const std::byte> bytes, const std::string& name = "model.gguf");

  Gguf(Gguf&&) noexcept;
  Gguf& operator=(Gguf&&) noexcept;
  ~Gguf();

  /// The keys of the metadata, in alphabetical order.
  std::vector<std::string> keys() const;
  bool has(std::string_view key) const;
  /// The members below throw FileError if the file has no such key or its value is of another kind.
  std::string text(std::string_view key) const;
  std::int64_t integer(std::string_view key) const;
  /// An f32 is returned as the shortest decimal number that rounds to it (1e-05), which is what its author wrote.
  double number(std::string_view key) const;
  bool flag(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  /// One whole number, or a list of them.
  std::vector<std::int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;

  /// The tensors' names, in alphabetical order.
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  /// The members below throw UsageError for an unknown name.
  const GgufTensor& tensor(std::string_view name) const;
  /// Copies bytes of a tensor, beginning at the byte `from`.
  void read(std::string_view name, std::span<std::byte> bytes, std::uint64_t from = 0) const;
  /// The values of a tensor from its element `first` on, which must be the first of a block.
  void read_f32(std::string_view name, std::span<float> values, std::uint64_t first = 0) const;

  const std::filesystem::path& path() const;

 private:
  struct Content;
  explicit Gguf(std::unique_ptr<Content> content);

  std::unique_ptr<Content> content_;
};

}  // namespace jerboa
