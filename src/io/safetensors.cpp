#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/io/safetensors.h>

#include "io/byte_source.h"
#include "io/safetensors_header.h"

namespace jerboa {
namespace fs = std::filesystem;
namespace {

using io::ByteSource;

io::SafeTensorsLayout read_layout(const ByteSource& source, const std::string& name) {
  std::array<std::byte, sizeof(std::uint64_t)> length{};
  const auto first = std::span(length).first(std::min<std::size_t>(length.size(), source.size()));
  source.read(0, first);
  std::vector<std::byte> header(io::header_bytes(first, source.size(), name));
  source.read(0, header);
  return io::parse_layout(header, source.size(), name);
}

// Larger elements first, like the reference implementation, so that every tensor is aligned.
std::vector<TensorView> in_file_order(std::span<const TensorView> tensors) {
  std::vector<TensorView> ordered(tensors.begin(), tensors.end());
  std::sort(ordered.begin(), ordered.end(), [](const TensorView& a, const TensorView& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.name < b.name;
  });
  return ordered;
}

}  // namespace

struct SafeTensors::Content {
  struct Tensor {
    TensorEntry entry;
    std::shared_ptr<const ByteSource> source;
    std::uint64_t offset = 0;
    // The view that view() returns, and the bytes read for it.
    std::optional<TensorView> view = {};
    std::vector<std::byte> bytes = {};
  };

  void add(const std::shared_ptr<const ByteSource>& source, const std::string& name) {
    io::SafeTensorsLayout layout = read_layout(*source, name);
    for (io::TensorPlace& place : layout.tensors)
      tensors.emplace(
          std::move(place.name),
          Tensor{{place.type, std::move(place.shape), static_cast<std::size_t>(place.bytes)}, source, place.offset});
    metadata.merge(layout.metadata);
  }
  void add_file(const fs::path& file) { add(std::make_shared<io::FileSource>(file), file.string()); }
  void add_shards(const fs::path& index);

  Tensor& find(std::string_view name) {
    if (const auto found = tensors.find(name); found != tensors.end()) return found->second;
    std::string known;
    constexpr std::size_t most_shown = 10;
    for (std::size_t shown = 0; const auto& [other, tensor] : tensors) {
      if (shown == most_shown) known += ", …";
      if (shown++ >= most_shown) break;
      known += (known.empty() ? "" : ", ") + other;
    }
    throw UsageError(
        fmt::format("{} has no tensor \"{}\"; its {} tensors are: {}", path.string(), name, tensors.size(), known));
  }

  fs::path path;
  std::map<std::string, Tensor, std::less<>> tensors;
  Metadata metadata;
  std::mutex mutex;  // guards what view() reads
};

void SafeTensors::Content::add_shards(const fs::path& index) {
  const auto shard_of = io::parse_shard_index(FileContent(index).text(), index.string());
  std::map<std::string, std::vector<std::string>> names_in;
  for (const auto& [name, shard] : shard_of) names_in[shard].push_back(name);
  for (const auto& [shard, names] : names_in) {
    Content part;
    part.add_file(index.parent_path() / shard);
    for (const auto& name : names) {
      auto node = part.tensors.extract(name);
      if (node.empty())
        throw FileError(
            fmt::format("{}: tensor \"{}\" should be in {}, which does not have it", index.string(), name, shard));
      tensors.insert(std::move(node));
    }
    metadata.merge(part.metadata);
  }
}

SafeTensors::SafeTensors(fs::path path) : content_(std::make_unique<Content>()) { content_->path = std::move(path); }
SafeTensors::SafeTensors(SafeTensors&&) noexcept = default;
SafeTensors& SafeTensors::operator=(SafeTensors&&) noexcept = default;
SafeTensors::~SafeTensors() = default;

SafeTensors SafeTensors::open(const fs::path& path) {
  SafeTensors result(path);
  Content& content = *result.content_;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    path.extension() == ".json" ? content.add_shards(path) : content.add_file(path);
  } else if (const auto single = path / "model.safetensors"; fs::exists(single, ignored)) {
    content.add_file(single);
  } else if (const auto index = path / "model.safetensors.index.json"; fs::exists(index, ignored)) {
    content.add_shards(index);
  } else {
    throw FileError(
        fmt::format("{}: the folder has neither model.safetensors nor model.safetensors.index.json", path.string()));
  }
  return result;
}

SafeTensors SafeTensors::from_bytes(std::span<const std::byte> bytes, const std::string& name) {
  SafeTensors result{fs::path(name)};
  result.content_->add(std::make_shared<io::MemorySource>(bytes), name);
  return result;
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  names.reserve(size());
  for (const auto& [name, tensor] : content_->tensors) names.push_back(name);
  return names;
}

std::size_t SafeTensors::size() const { return content_->tensors.size(); }
bool SafeTensors::contains(std::string_view name) const { return content_->tensors.contains(name); }
const SafeTensors::Metadata& SafeTensors::metadata() const { return content_->metadata; }
const fs::path& SafeTensors::path() const { return content_->path; }

const TensorEntry& SafeTensors::entry(std::string_view name) const { return content_->find(name).entry; }

const TensorView& SafeTensors::view(std::string_view name) const {
  Content::Tensor& tensor = content_->find(name);
  const std::lock_guard lock(content_->mutex);
  if (tensor.view) return *tensor.view;
  auto bytes = tensor.source->in_place(tensor.offset, tensor.entry.bytes);
  if (!bytes) {
    tensor.bytes.resize(tensor.entry.bytes);
    tensor.source->read(tensor.offset, tensor.bytes);
    bytes = tensor.bytes;
  }
  return tensor.view.emplace(TensorView{std::string(name), tensor.entry.type, tensor.entry.shape, *bytes});
}

void SafeTensors::read(std::string_view name, std::span<std::byte> bytes) const {
  const Content::Tensor& tensor = content_->find(name);
  if (bytes.size() != tensor.entry.bytes)
    throw UsageError(fmt::format("tensor \"{}\" has {} bytes, not {}", name, tensor.entry.bytes, bytes.size()));
  tensor.source->read(tensor.offset, bytes);
}

void SafeTensors::read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const {
  const Content::Tensor& tensor = content_->find(name);
  tensor.source->read(tensor.offset + from, bytes);
}

void SafeTensors::read_f32(std::string_view name, std::span<float> values) const {
  const Content::Tensor& tensor = content_->find(name);
  const TensorEntry& entry = tensor.entry;
  if (values.size() != entry.elements())
    throw UsageError(fmt::format("tensor \"{}\" has {} elements, not {}", name, entry.elements(), values.size()));
  if (entry.type == StoredType::F32) return read(name, std::as_writable_bytes(values));
  constexpr std::size_t elements_at_once = 1u << 17;  // few enough to stay in the cache until they are converted
  std::vector<std::byte> buffer(std::min(elements_at_once, entry.elements()) * size_of(entry.type));
  std::uint64_t offset = tensor.offset;
  while (!values.empty()) {
    const auto part = values.first(std::min(elements_at_once, values.size()));
    const auto bytes = std::span(buffer).first(part.size() * size_of(entry.type));
    tensor.source->read(offset, bytes);
    to_f32({std::string(name), entry.type, {}, bytes}, part);
    offset += bytes.size();
    values = values.subspan(part.size());
  }
}

void write_safetensors(const fs::path& path, std::span<const TensorView> tensors,
                       const SafeTensors::Metadata& metadata) {
  const std::vector<TensorView> ordered = in_file_order(tensors);
  const std::string header = io::encode_header(ordered, metadata);
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
  for (const auto& tensor : ordered) pieces.push_back(tensor.bytes);
  write_file_atomically(path, pieces);
}

std::vector<std::byte> encode_safetensors(std::span<const TensorView> tensors, const SafeTensors::Metadata& metadata) {
  const std::vector<TensorView> ordered = in_file_order(tensors);
  const std::string header = io::encode_header(ordered, metadata);
  const auto first = std::as_bytes(std::span(header));
  std::vector<std::byte> bytes(first.begin(), first.end());
  for (const auto& tensor : ordered) bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
  return bytes;
}

}  // namespace jerboa
