#include "c_api/checkpoint.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "io/safetensors_header.h"

namespace jerboa::c_api {

void Checkpoint::add_file(const std::string& name, std::string_view header, std::uint64_t file_bytes) {
  const auto bytes = std::as_bytes(std::span(header.data(), header.size()));
  if (bytes.size() < 8) throw FileError(fmt::format("{}: the header is truncated", name));
  const std::uint64_t length = io::header_bytes(bytes.first(8), file_bytes, name);
  if (length > bytes.size()) throw FileError(fmt::format("{}: the header is truncated", name));
  const io::SafeTensorsLayout layout =
      io::parse_layout(bytes.first(static_cast<std::size_t>(length)), file_bytes, name);
  for (const io::TensorPlace& tensor : layout.tensors) {
    const Held held{{tensor.type, tensor.shape, static_cast<std::size_t>(tensor.bytes)}, {name, tensor.offset}};
    if (!tensors_.emplace(tensor.name, held).second)
      throw FileError(fmt::format("{}: the tensor {} is also in {}", name, tensor.name, place(tensor.name).file));
  }
  metadata_.insert(layout.metadata.begin(), layout.metadata.end());
  path_ = name;
}

Checkpoint Checkpoint::holding(const std::map<std::string, std::string_view>& bytes, std::int64_t rows) const {
  Checkpoint part;
  part.metadata_ = metadata_;
  part.path_ = path_;
  for (const auto& [name, content] : bytes) {
    Held held = find(name);
    if (rows > 0) {
      const std::size_t row_bytes = held.entry.bytes / static_cast<std::size_t>(held.entry.shape.at(0));
      held.entry.shape[0] = rows;
      held.entry.bytes = row_bytes * static_cast<std::size_t>(rows);
    }
    if (content.size() != held.entry.bytes)
      throw UsageError(fmt::format("{} takes {} bytes, not {}", name, held.entry.bytes, content.size()));
    held.bytes = content;
    part.tensors_.emplace(name, std::move(held));
  }
  return part;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& item : tensors_) names.push_back(item.first);
  return names;
}

const Checkpoint::Held& Checkpoint::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw UsageError(fmt::format("{}: has no tensor {}", path_.string(), name));
  return found->second;
}

TensorView Checkpoint::view(std::string_view name) const {
  const Held& held = find(name);
  if (held.bytes.size() != held.entry.bytes) throw UsageError(fmt::format("the bytes of {} are missing", name));
  return {std::string(name), held.entry.type, held.entry.shape,
          std::as_bytes(std::span(held.bytes.data(), held.bytes.size()))};
}

void Checkpoint::read(std::string_view name, std::span<std::byte> bytes) const {
  const TensorView held = view(name);
  std::copy(held.bytes.begin(), held.bytes.end(), bytes.begin());
}

void Checkpoint::read_f32(std::string_view name, std::span<float> values) const { to_f32(view(name), values); }

}  // namespace jerboa::c_api
