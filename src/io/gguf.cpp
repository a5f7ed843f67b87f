#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/io/gguf.h>

#include "base/parse_json.h"
#include "base/read_double.h"
#include "io/gguf_header.h"

namespace jerboa {
namespace fs = std::filesystem;

using io::GgufKind;
using io::GgufValue;

struct Gguf::Content {
  Content(std::unique_ptr<const io::ByteSource> bytes, fs::path name)
      : source(std::move(bytes)), path(std::move(name)), layout(io::parse_gguf(*source, path.string())) {}

  std::unique_ptr<const io::ByteSource> source;
  fs::path path;
  io::GgufLayout layout;

  const GgufValue& value(std::string_view key) const {
    if (const auto found = layout.metadata.find(key); found != layout.metadata.end()) return found->second;
    throw FileError(fmt::format("{}: the metadata has no {}", path.string(), in_quotes(key)));
  }
  const GgufTensor& tensor(std::string_view name) const {
    if (const auto found = layout.tensors.find(name); found != layout.tensors.end()) return found->second;
    throw UsageError(
        fmt::format("{} has no tensor {}; it has {} others", path.string(), in_quotes(name), layout.tensors.size()));
  }
  [[noreturn]] void refuse(std::string_view key, std::string_view kind) const {
    throw FileError(fmt::format("{}: {} is not {}", path.string(), in_quotes(key), kind));
  }

  template <class T>
  T at(std::uint64_t offset) const {
    T result;
    std::memcpy(&result, layout.header.data() + offset, sizeof(T));
    return result;
  }
  /// Element i of a value whose elements are numbers or booleans.
  template <class T>
  T element(const GgufValue& value, std::uint64_t i) const {
    return at<T>(value.offset + i * sizeof(T));
  }
  std::string text_at(std::uint64_t& offset) const {
    const auto length = at<std::uint64_t>(offset);
    std::string text(reinterpret_cast<const char*>(layout.header.data()) + offset + sizeof length, length);
    offset += sizeof length + length;
    return text;
  }
  std::int64_t integer(const GgufValue& value, std::uint64_t i, std::string_view key) const {
    switch (value.kind) {
      case GgufKind::u8: return element<std::uint8_t>(value, i);
      case GgufKind::i8: return element<std::int8_t>(value, i);
      case GgufKind::u16: return element<std::uint16_t>(value, i);
      case GgufKind::i16: return element<std::int16_t>(value, i);
      case GgufKind::u32: return element<std::uint32_t>(value, i);
      case GgufKind::i32: return element<std::int32_t>(value, i);
      case GgufKind::i64: return element<std::int64_t>(value, i);
      case GgufKind::u64:
        if (const auto number = element<std::uint64_t>(value, i); std::in_range<std::int64_t>(number))
          return static_cast<std::int64_t>(number);
        refuse(key, "a number below 2^63");
      default: refuse(key, value.is_array ? "a list of whole numbers" : "a whole number");
    }
  }
};

namespace {

double shortest(float value) {
  const std::string text = fmt::format("{}", value);
  double result = value;
  read_double(text.data(), text.data() + text.size(), result);  // "inf" and "nan" are accepted too
  return result;
}

}  // namespace

Gguf::Gguf(std::unique_ptr<Content> content) : content_(std::move(content)) {}
Gguf::Gguf(Gguf&&) noexcept = default;
Gguf& Gguf::operator=(Gguf&&) noexcept = default;
Gguf::~Gguf() = default;

Gguf Gguf::open(const fs::path& path) {
  return Gguf(std::make_unique<Content>(std::make_unique<io::FileSource>(path), path));
}

Gguf Gguf::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return Gguf(std::make_unique<Content>(std::make_unique<io::MemorySource>(bytes), name));
}

std::vector<std::string> Gguf::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : content_->layout.metadata) keys.push_back(key);
  return keys;
}

bool Gguf::has(std::string_view key) const { return content_->layout.metadata.contains(key); }

std::string Gguf::text(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  if (value.kind != GgufKind::text || value.is_array) content_->refuse(key, "a text");
  std::uint64_t offset = value.offset;
  return content_->text_at(offset);
}

std::int64_t Gguf::integer(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  if (value.is_array) content_->refuse(key, "a whole number");
  return content_->integer(value, 0, key);
}

double Gguf::number(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  if (value.is_array) content_->refuse(key, "a number");
  if (value.kind == GgufKind::f32) return shortest(content_->element<float>(value, 0));
  if (value.kind == GgufKind::f64) return content_->element<double>(value, 0);
  return static_cast<double>(content_->integer(value, 0, key));
}

bool Gguf::flag(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  const bool fits = value.kind == GgufKind::boolean && !value.is_array;
  const auto byte = fits ? content_->element<std::uint8_t>(value, 0) : std::uint8_t{2};
  if (byte > 1) content_->refuse(key, "true or false");
  return byte == 1;
}

std::vector<std::string> Gguf::texts(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  if (value.kind != GgufKind::text || !value.is_array) content_->refuse(key, "a list of strings");
  std::vector<std::string> texts;
  texts.reserve(value.count);
  for (std::uint64_t i = 0, offset = value.offset; i < value.count; ++i) texts.push_back(content_->text_at(offset));
  return texts;
}

std::vector<std::int64_t> Gguf::integers(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  std::vector<std::int64_t> list;
  list.reserve(io::size_of(value.kind) > 0 ? value.count : 0);
  for (std::uint64_t i = 0; i < value.count; ++i) list.push_back(content_->integer(value, i, key));
  return list;
}

std::vector<float> Gguf::numbers(std::string_view key) const {
  const GgufValue& value = content_->value(key);
  if (value.kind != GgufKind::f32 || !value.is_array) content_->refuse(key, "a list of f32 numbers");
  std::vector<float> list(value.count);
  if (value.count > 0)
    std::memcpy(list.data(), content_->layout.header.data() + value.offset, value.count * sizeof(float));
  return list;
}

std::vector<std::string> Gguf::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : content_->layout.tensors) names.push_back(name);
  return names;
}

bool Gguf::contains(std::string_view name) const { return content_->layout.tensors.contains(name); }
const GgufTensor& Gguf::tensor(std::string_view name) const { return content_->tensor(name); }
const fs::path& Gguf::path() const { return content_->path; }

void Gguf::read(std::string_view name, std::span<std::byte> bytes, std::uint64_t from) const {
  const GgufTensor& tensor = content_->tensor(name);
  if (from > tensor.bytes || bytes.size() > tensor.bytes - from)
    throw UsageError(fmt::format("tensor \"{}\" has {} bytes: {} bytes at {} are out of range", name, tensor.bytes,
                                 bytes.size(), from));
  content_->source->read(tensor.offset + from, bytes);
}

void Gguf::read_f32(std::string_view name, std::span<float> values, std::uint64_t first) const {
  const GgufTensor& tensor = content_->tensor(name);
  const std::size_t block = block_values(tensor.type), bytes = block_bytes(tensor.type);
  if (first % block != 0 || values.size() % block != 0 || first > tensor.elements() ||
      values.size() > tensor.elements() - first)
    throw UsageError(fmt::format("tensor \"{}\" has {} values in blocks of {}: {} from {} on cannot be read", name,
                                 tensor.elements(), block, values.size(), first));
  if (tensor.type == GgmlType::F32) return read(name, std::as_writable_bytes(values), first * sizeof(float));
  constexpr std::size_t values_at_once = 1u << 17;  // a multiple of every block size, small enough for the cache
  std::vector<std::byte> buffer(std::min(values_at_once, values.size()) / block * bytes);
  std::uint64_t from = first / block * bytes;
  while (!values.empty()) {
    const auto part = values.first(std::min(values_at_once, values.size()));
    const auto blocks = std::span(buffer).first(part.size() / block * bytes);
    read(name, blocks, from);
    dequantise(tensor.type, blocks, part);
    from += blocks.size();
    values = values.subspan(part.size());
  }
}

}  // namespace jerboa
