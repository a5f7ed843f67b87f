#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>
#include <optional>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "models/gguf_parts.h"
#include "models/rotary_rows.h"

namespace jerboa::models {
namespace {

// Tensors that say how positions are encoded: gguf_config reads them.
bool is_about_rope(std::string_view name) {
  return name.starts_with("rope_") || name.ends_with(".attn_rot_embd") || name.ends_with(".attn_rot_embd.weight");
}

/// A Hugging Face tensor: a GGUF tensor, or one expert's part of it, and what was done to it.
struct GgufItem {
  std::string stored;
  GgmlType type = GgmlType::F32;
  GgufChange change = GgufChange::none;
  std::uint64_t first = 0;  // element
  TensorEntry entry;
};

StoredType type_as_read(GgmlType type, GgufChange change) {
  if (change == GgufChange::plus_one || change == GgufChange::transposed) return StoredType::F32;  // computed
  if (type == GgmlType::F16) return StoredType::F16;
  return type == GgmlType::BF16 ? StoredType::BF16 : StoredType::F32;
}

void transpose_values(std::span<const float> from, std::int64_t rows, std::int64_t columns, std::span<float> to) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      to[static_cast<std::size_t>(j * rows + i)] = from[static_cast<std::size_t>(i * columns + j)];
}

/// Moves the bytes of Q8_0 or Q4_0 blocks, a scale and 32 weights each, to weights and scales. Their weights are in our
/// own order.
bool split_blocks(std::span<const std::byte> blocks, std::size_t block, std::span<std::byte> weights,
                  std::span<std::uint16_t> scales) {
  constexpr std::size_t scale = sizeof(std::uint16_t);
  const std::size_t each = block - scale, count = blocks.size() / block;
  if (weights.size() != count * each || scales.size() != count) return false;
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(&scales[i], blocks.data() + i * block, scale);
    std::memcpy(weights.data() + i * each, blocks.data() + i * block + scale, each);
  }
  return true;
}

class GgufWeights final : public TensorSource {
 public:
  GgufWeights(std::shared_ptr<const Gguf> file, const GgufArchitecture& architecture)
      : file_(std::move(file)), architecture_(architecture) {
    if (architecture.form != GgufArchitecture::Form::gpt2) heads_.emplace(*file_, architecture);
    for (const std::string& name : file_->names())
      if (!is_about_rope(name)) add(name);
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, item] : items_) names.push_back(name);
    return names;
  }
  bool contains(std::string_view name) const override { return items_.contains(name); }
  const TensorEntry& entry(std::string_view name) const override { return find(name).entry; }
  const std::filesystem::path& path() const override { return file_->path(); }

  void read(std::string_view name, std::span<std::byte> bytes) const override {
    const GgufItem& item = find(name);
    if (bytes.size() != item.entry.bytes)
      throw UsageError(fmt::format("tensor \"{}\" has {} bytes, not {}", name, item.entry.bytes, bytes.size()));
    if (item.entry.type != StoredType::F32) return read_stored(item, bytes);
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0)
      return read_f32(name, {reinterpret_cast<float*>(bytes.data()), item.entry.elements()});
    std::vector<float> values(item.entry.elements());
    read_f32(name, values);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }

  void read_f32(std::string_view name, std::span<float> values) const override {
    const GgufItem& item = find(name);
    if (values.size() != item.entry.elements())
      throw UsageError(
          fmt::format("tensor \"{}\" has {} elements, not {}", name, item.entry.elements(), values.size()));
    if (item.change == GgufChange::none || item.change == GgufChange::experts || item.change == GgufChange::plus_one) {
      file_->read_f32(item.stored, values, item.first);
      if (item.change == GgufChange::plus_one)
        for (float& value : values) value -= 1;
      return;
    }
    std::vector<float> stored(values.size());
    file_->read_f32(item.stored, stored, item.first);
    if (item.change == GgufChange::transposed)
      transpose_values(stored, item.entry.shape[1], item.entry.shape[0], values);
    else
      halves_of_pairs(std::as_bytes(std::span(stored)), std::as_writable_bytes(values), head_count(item), heads_->size);
  }

  bool read_quantised(std::string_view name, DType dtype, std::span<std::byte> weights,
                      std::span<std::uint16_t> scales) const override {
    const GgufItem& item = find(name);
    const bool fits =
        (item.type == GgmlType::Q8_0 && dtype == DType::i8) || (item.type == GgmlType::Q4_0 && dtype == DType::i4);
    if (!fits || item.change == GgufChange::transposed || item.change == GgufChange::plus_one) return false;
    const std::size_t block = block_bytes(item.type);
    std::vector<std::byte> blocks(item.entry.elements() / block_values(item.type) * block);
    read_stored(item, blocks);
    if (item.type == GgmlType::Q8_0 && has_lowest(blocks, block)) return false;
    return split_blocks(blocks, block, weights, scales);
  }

 private:
  void add(const std::string& name) {
    const auto place = find_place(architecture_, name);
    if (!place)
      throw FileError(fmt::format("{}: the tensor {} has no known counterpart in a Hugging Face model of type {}",
                                  path().string(), in_quotes(name), architecture_.model_type));
    const GgufTensor& tensor = file_->tensor(name);
    GgufItem item{name, tensor.type, place->name->change, 0, {}};
    std::vector<std::int64_t> shape = tensor.shape;
    if (item.change == GgufChange::transposed && shape.size() == 1) item.change = GgufChange::none;  // a bias
    if (item.change == GgufChange::transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
    item.entry.type = type_as_read(item.type, item.change);
    check(item, shape, name);
    const std::int64_t parts = item.change == GgufChange::experts ? shape[0] : 1;
    if (item.change == GgufChange::experts) shape.erase(shape.begin());
    const std::size_t elements = parts == 0 ? 0 : tensor.elements() / static_cast<std::size_t>(parts);
    item.entry.shape = shape;
    item.entry.bytes = elements * size_of(item.entry.type);
    for (std::int64_t part = 0; part < parts; ++part) {
      item.first = static_cast<std::uint64_t>(part) * elements;
      items_.emplace(place->hugging_face(part), item);
    }
  }

  void check(const GgufItem& item, const std::vector<std::int64_t>& shape, const std::string& name) const {
    const auto fail = [&](const std::string& what) {
      throw FileError(fmt::format("{}: tensor {}: {}", path().string(), in_quotes(name), what));
    };
    if (shape.empty()) fail("it has no axes");
    if (item.change == GgufChange::experts && (shape.size() != 3 || shape[0] > 4096 || file_->tensor(name).bytes == 0))
      fail("it is not [experts, rows, columns]");
    if (item.change == GgufChange::transposed && shape.size() != 2) fail("it does not have two axes");
    if (item.change != GgufChange::query_rows && item.change != GgufChange::key_rows) return;
    if (shape[0] != head_count(item) * heads_->size || heads_->size % 2 != 0)
      fail(fmt::format("{} rows are not {} heads of an even size {}", shape[0], head_count(item), heads_->size));
  }

  std::int64_t head_count(const GgufItem& item) const {
    return item.change == GgufChange::query_rows ? heads_->queries : heads_->keys;
  }

  /// The bytes as stored, with the rows in Hugging Face's order.
  void read_stored(const GgufItem& item, std::span<std::byte> bytes) const {
    const std::uint64_t from = item.first / block_values(item.type) * block_bytes(item.type);
    if (item.change == GgufChange::none || item.change == GgufChange::experts)
      return file_->read(item.stored, bytes, from);
    std::vector<std::byte> stored(bytes.size());
    file_->read(item.stored, stored, from);
    halves_of_pairs(stored, bytes, head_count(item), heads_->size);
  }

  // Kernels may rely on int8 weights from -127 on, which is all that ggml itself writes.
  static bool has_lowest(std::span<const std::byte> blocks, std::size_t block) {
    for (std::size_t at = 0; at < blocks.size(); at += block) {
      const auto weights = blocks.subspan(at + sizeof(std::uint16_t), block - sizeof(std::uint16_t));
      if (std::find(weights.begin(), weights.end(), std::byte{0x80}) != weights.end()) return true;
    }
    return false;
  }

  const GgufItem& find(std::string_view name) const {
    if (const auto found = items_.find(name); found != items_.end()) return found->second;
    throw UsageError(fmt::format("{} has no tensor for \"{}\"", path().string(), name));
  }

  std::shared_ptr<const Gguf> file_;
  const GgufArchitecture& architecture_;
  std::optional<GgufHeads> heads_;
  std::map<std::string, GgufItem, std::less<>> items_;
};

}  // namespace

std::unique_ptr<const TensorSource> gguf_weights(std::shared_ptr<const Gguf> file,
                                                 const GgufArchitecture& architecture) {
  return std::make_unique<GgufWeights>(std::move(file), architecture);
}

}  // namespace jerboa::models
