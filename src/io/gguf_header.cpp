#include "io/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "base/stable_sort.h"

namespace jerboa::io {
namespace {

constexpr std::array<char, 4> magic{'G', 'G', 'U', 'F'};
constexpr std::uint64_t usual_alignment = 32;
constexpr std::uint32_t most_axes = 4;  // ggml's limit
constexpr std::size_t most_nested = 4;  // arrays of arrays, which nothing uses
constexpr std::uint64_t text_header = sizeof(std::uint64_t);

// The fewest bytes that an entry can take: a count that the rest of the file cannot hold is refused at once.
constexpr std::uint64_t least_metadata = text_header + sizeof(std::uint32_t) + 1;
constexpr std::uint64_t least_tensor =
    text_header + sizeof(std::uint32_t) + sizeof(std::uint32_t) + sizeof(std::uint64_t);

/// Reads a header from its beginning, and no more of the file than it needs.
class GgufReader {
 public:
  GgufReader(const ByteSource& source, const std::string& file) : source_(source), file_(file) {}

  /// The item being read, for messages: `the value of "general.name"`.
  std::string context = "the beginning";

  std::uint64_t at() const { return at_; }
  std::uint64_t rest() const { return source_.size() - at_; }
  std::vector<std::byte> take_header() {
    header_.resize(at_);
    header_.shrink_to_fit();
    return std::move(header_);
  }

  [[noreturn]] void fail(std::string_view what) const { throw FileError(fmt::format("{}: {}", file_, what)); }

  template <class T>
  T number() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, header_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto length = number<std::uint64_t>();
    need(length);
    std::string value(reinterpret_cast<const char*>(header_.data()) + at_, length);
    at_ += length;
    return value;
  }
  void skip(std::uint64_t bytes) {
    need(bytes);
    at_ += bytes;
  }
  void skip_text() { skip(number<std::uint64_t>()); }
  /// A count of items that take at least `least` bytes each.
  std::uint64_t count(std::uint64_t least, std::string_view of) {
    const auto count = number<std::uint64_t>();
    if (count > rest() / least)
      fail(fmt::format("{} specifies {} {}, more than the rest of the file, {} bytes, can hold", context, count, of,
                       rest()));
    return count;
  }

 private:
  void need(std::uint64_t bytes) {
    if (bytes > rest())
      fail(fmt::format("ends inside {}, which needs {} more bytes at byte {} of {}; the file is truncated or malformed",
                       context, bytes, at_, source_.size()));
    if (at_ + bytes <= header_.size()) return;
    constexpr std::uint64_t step = 1u << 20;
    const std::uint64_t before = header_.size();
    const std::uint64_t wanted = std::max(at_ + bytes, before + std::max(step, before / 2));
    header_.resize(std::min(wanted, source_.size()));
    source_.read(before, std::span(header_).subspan(before));
  }

  const ByteSource& source_;
  const std::string& file_;
  std::vector<std::byte> header_;
  std::uint64_t at_ = 0;
};

GgufKind read_kind(GgufReader& reader) {
  const auto kind = reader.number<std::uint32_t>();
  if (kind > static_cast<std::uint32_t>(GgufKind::f64))
    reader.fail(fmt::format("{} has the unknown type {}", reader.context, kind));
  return static_cast<GgufKind>(kind);
}

void skip_values(GgufReader& reader, GgufKind kind, std::uint64_t count, std::size_t depth) {
  if (const std::size_t size = size_of(kind); size > 0) return reader.skip(count * size);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (kind == GgufKind::text) {
      reader.skip_text();
      continue;
    }
    if (depth == most_nested) reader.fail(fmt::format("{} has arrays nested too deeply", reader.context));
    const GgufKind element = read_kind(reader);
    const std::size_t least = size_of(element);
    skip_values(reader, element, reader.count(least > 0 ? least : text_header, "elements"), depth + 1);
  }
}

GgufValue read_value(GgufReader& reader) {
  GgufValue value;
  value.kind = read_kind(reader);
  if (value.kind == GgufKind::array) {
    value.is_array = true;
    value.kind = read_kind(reader);
    const std::size_t least = size_of(value.kind);
    value.count = reader.count(least > 0 ? least : text_header, "elements");
  }
  value.offset = reader.at();
  skip_values(reader, value.kind, value.count, 0);
  return value;
}

void check_beginning(GgufReader& reader) {
  if (reader.rest() < magic.size() || reader.number<std::array<char, 4>>() != magic)
    reader.fail("not a GGUF file: it does not begin with \"GGUF\"");
  const auto version = reader.number<std::uint32_t>();
  if (version == 2 || version == 3) return;
  if (version == 0x02000000 || version == 0x03000000)
    reader.fail("a big-endian GGUF file, which is not supported; convert the model again as little-endian");
  reader.fail(
      fmt::format("version {} of GGUF is not supported, only 2 and 3; convert the model again with a current "
                  "llama.cpp",
                  version));
}

std::uint64_t alignment_in(const GgufLayout& layout, std::span<const std::byte> header, const GgufReader& reader) {
  const auto found = layout.metadata.find("general.alignment");
  if (found == layout.metadata.end()) return usual_alignment;
  std::uint32_t alignment = 0;
  if (found->second.kind == GgufKind::u32 && !found->second.is_array)
    std::memcpy(&alignment, header.data() + found->second.offset, sizeof alignment);
  if (!std::has_single_bit(alignment)) reader.fail("\"general.alignment\" is not a power of two stored as u32");
  return alignment;
}

/// Sets `offset` to the tensor's offset from the beginning of the data.
GgufTensor read_tensor(GgufReader& reader) {
  GgufTensor tensor;
  const auto axes = reader.number<std::uint32_t>();
  if (axes > most_axes) reader.fail(fmt::format("{} has {} axes, more than {}", reader.context, axes, most_axes));
  for (std::uint32_t i = 0; i < axes; ++i) {
    const auto size = reader.number<std::uint64_t>();
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      reader.fail(fmt::format("{}: the size {} is too large", reader.context, size));
    tensor.shape.insert(tensor.shape.begin(), static_cast<std::int64_t>(size));
  }
  const auto number = reader.number<std::uint32_t>();
  const auto type = ggml_type(number);
  if (!type)
    reader.fail(fmt::format("{} has type {}, which is not supported; convert the model to one of {}", reader.context,
                            number, fmt::join(ggml_type_names(), ", ")));
  tensor.type = *type;
  tensor.offset = reader.number<std::uint64_t>();
  return tensor;
}

std::size_t bytes_of(const GgufTensor& tensor, const GgufReader& reader) {
  const auto block = static_cast<std::int64_t>(block_values(tensor.type));
  if (!tensor.shape.empty() && tensor.shape.back() % block != 0)
    reader.fail(fmt::format("{} has rows of {} values, but {} stores blocks of {}", reader.context, tensor.shape.back(),
                            to_string(tensor.type), block));
  // The sizes of an empty tensor must fit too, so that strides cannot overflow later.
  std::int64_t values = 1;
  bool empty = false, overflow = tensor.shape.empty() && block > 1;
  for (const std::int64_t size : tensor.shape) {
    empty = empty || size == 0;
    overflow = overflow || (size > 0 && __builtin_mul_overflow(values, size, &values));
  }
  std::int64_t bytes = 0;
  overflow =
      overflow || __builtin_mul_overflow(values / block, static_cast<std::int64_t>(block_bytes(tensor.type)), &bytes);
  if (overflow)
    reader.fail(fmt::format("{}: [{}] of {} is not a valid shape", reader.context, fmt::join(tensor.shape, ", "),
                            to_string(tensor.type)));
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

std::uint64_t aligned(std::uint64_t offset, std::uint64_t alignment) {
  return offset + (alignment - offset % alignment) % alignment;
}

/// Turns offsets within the data into offsets within the file.
void place_tensors(GgufLayout& layout, std::uint64_t begin, std::uint64_t alignment, std::uint64_t file_bytes,
                   const GgufReader& reader) {
  const std::uint64_t data_bytes = file_bytes > begin ? file_bytes - begin : 0;
  std::vector<std::pair<const std::string*, GgufTensor*>> order;
  for (auto& [name, tensor] : layout.tensors) {
    if (tensor.offset % alignment != 0)
      reader.fail(fmt::format("tensor {}: its offset {} is not a multiple of the alignment {}", in_quotes(name),
                              tensor.offset, alignment));
    if (tensor.bytes > data_bytes || tensor.offset > data_bytes - tensor.bytes)
      reader.fail(
          fmt::format("tensor {}: its {} bytes at {} reach beyond the end of the data, which has {} bytes; is "
                      "the file complete?",
                      in_quotes(name), tensor.bytes, tensor.offset, data_bytes));
    tensor.offset += begin;
    if (tensor.bytes > 0) order.emplace_back(&name, &tensor);
  }
  detail::stable_sort(order, [](const auto& a, const auto& b) { return a.second->offset < b.second->offset; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1].second->offset + order[i - 1].second->bytes > order[i].second->offset)
      reader.fail(
          fmt::format("the tensors {} and {} overlap", in_quotes(*order[i - 1].first), in_quotes(*order[i].first)));
}

}  // namespace

std::size_t size_of(GgufKind kind) {
  switch (kind) {
    case GgufKind::u8:
    case GgufKind::i8:
    case GgufKind::boolean: return 1;
    case GgufKind::u16:
    case GgufKind::i16: return 2;
    case GgufKind::u32:
    case GgufKind::i32:
    case GgufKind::f32: return 4;
    case GgufKind::u64:
    case GgufKind::i64:
    case GgufKind::f64: return 8;
    case GgufKind::text:
    case GgufKind::array: break;
  }
  return 0;
}

GgufLayout parse_gguf(const ByteSource& source, const std::string& file) {
  GgufReader reader(source, file);
  check_beginning(reader);
  GgufLayout layout;
  const std::uint64_t tensors = reader.count(least_tensor, "tensors");
  const std::uint64_t entries = reader.count(least_metadata, "metadata entries");
  for (std::uint64_t i = 0; i < entries; ++i) {
    reader.context = fmt::format("the key of metadata entry {}", i);
    std::string key = reader.text();
    reader.context = fmt::format("the value of {}", in_quotes(key));
    const GgufValue value = read_value(reader);
    if (!layout.metadata.emplace(key, value).second)
      reader.fail(fmt::format("the key {} occurs twice", in_quotes(key)));
  }
  for (std::uint64_t i = 0; i < tensors; ++i) {
    reader.context = fmt::format("the name of tensor {}", i);
    std::string name = reader.text();
    reader.context = fmt::format("tensor {}", in_quotes(name));
    GgufTensor tensor = read_tensor(reader);
    tensor.bytes = bytes_of(tensor, reader);
    if (!layout.tensors.emplace(name, std::move(tensor)).second)
      reader.fail(fmt::format("the tensor {} occurs twice", in_quotes(name)));
  }
  const std::uint64_t end = reader.at();
  layout.header = reader.take_header();
  const std::uint64_t alignment = alignment_in(layout, layout.header, reader);
  place_tensors(layout, aligned(end, alignment), alignment, source.size(), reader);
  return layout;
}

}  // namespace jerboa::io
