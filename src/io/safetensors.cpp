#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <system_error>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/io/safetensors.h>

#include "io/safetensors_header.h"

namespace jerboa {
namespace fs = std::filesystem;

SafeTensors SafeTensors::open(const fs::path& path) {
  SafeTensors result(path);
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    path.extension() == ".json" ? result.add_shards(path) : result.add_file(path);
  } else if (const auto single = path / "model.safetensors"; fs::exists(single, ignored)) {
    result.add_file(single);
  } else if (const auto index = path / "model.safetensors.index.json"; fs::exists(index, ignored)) {
    result.add_shards(index);
  } else {
    throw FileError(
        fmt::format("{}: the folder has neither model.safetensors nor model.safetensors.index.json", path.string()));
  }
  return result;
}

void SafeTensors::add_file(const fs::path& file) {
  const auto& mapped = files_.emplace_back(file);
  auto content = io::parse_safetensors(mapped.bytes(), file.string());
  for (auto& tensor : content.tensors) {
    std::string name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
  metadata_.merge(content.metadata);
}

void SafeTensors::add_shards(const fs::path& index) {
  const auto shard_of = io::parse_shard_index(MappedFile(index).text(), index.string());
  std::map<std::string, std::vector<std::string>> names_in;
  for (const auto& [name, shard] : shard_of) names_in[shard].push_back(name);
  for (const auto& [shard, names] : names_in) {
    SafeTensors part(index.parent_path() / shard);
    part.add_file(part.path());
    for (const auto& name : names) {
      auto node = part.tensors_.extract(name);
      if (node.empty())
        throw FileError(
            fmt::format("{}: tensor \"{}\" should be in {}, which does not have it", index.string(), name, shard));
      tensors_.insert(std::move(node));
    }
    files_.push_back(std::move(part.files_.front()));
    metadata_.merge(part.metadata_);
  }
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const TensorView& SafeTensors::view(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  std::string known;
  constexpr std::size_t most_shown = 10;
  for (std::size_t shown = 0; const auto& [other, tensor] : tensors_) {
    if (shown == most_shown) known += ", …";
    if (shown++ >= most_shown) break;
    known += (known.empty() ? "" : ", ") + other;
  }
  throw UsageError(fmt::format("{} has no tensor \"{}\"; its {} tensors are: {}", path_.string(), name, size(), known));
}

void write_safetensors(const fs::path& path, std::span<const TensorView> tensors,
                       const SafeTensors::Metadata& metadata) {
  std::vector<TensorView> ordered(tensors.begin(), tensors.end());
  // Larger elements first, as the reference implementation does: then every tensor starts aligned.
  std::sort(ordered.begin(), ordered.end(), [](const TensorView& a, const TensorView& b) {
    return size_of(a.type) != size_of(b.type) ? size_of(a.type) > size_of(b.type) : a.name < b.name;
  });
  const std::string header = io::encode_header(ordered, metadata);
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
  for (const auto& tensor : ordered) pieces.push_back(tensor.bytes);
  write_file_atomically(path, pieces);
}

}  // namespace jerboa
