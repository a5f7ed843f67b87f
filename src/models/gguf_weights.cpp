#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <optional>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "models/gguf_blocks.h"
#include "models/gguf_parts.h"
#include "models/listed_tensors.h"
#include "models/rotary_rows.h"
#include "models/transpose_matrices.h"

namespace jerboa::models {
namespace {

// Tensors that describe the rotary embedding: gguf_config reads them.
bool is_about_rope(std::string_view name) {
  return name.starts_with("rope_") || name.ends_with(".attn_rot_embd") || name.ends_with(".attn_rot_embd.weight");
}

/// A Hugging Face tensor: a GGUF tensor, or one expert's part of it, and the change to undo.
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

class GgufWeights final : public ListedTensors<GgufItem> {
 public:
  GgufWeights(std::shared_ptr<const Gguf> file, const GgufArchitecture& architecture)
      : file_(std::move(file)), architecture_(architecture) {
    if (architecture.form != GgufArchitecture::Form::gpt2) heads_.emplace(*file_, architecture);
    for (const std::string& name : file_->names())
      if (!is_about_rope(name)) add(name);
  }

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
      transpose_matrices(stored, item.entry.shape[1], item.entry.shape[0], values);
    else
      halves_of_pairs(std::as_bytes(std::span(stored)), std::as_writable_bytes(values), head_count(item), heads_->size);
  }

  bool reads_parts(std::string_view name) const override { return is_in_order(find(name)); }

  bool read_quantised(std::string_view name, DType dtype, std::span<std::byte> weights, std::span<std::uint16_t> scales,
                      std::span<std::uint16_t> mins) const override {
    const GgufItem& item = find(name);
    const bool is_computed = item.change == GgufChange::transposed || item.change == GgufChange::plus_one;
    if (is_computed || !fits_quantised(item.type, dtype)) return false;
    std::vector<std::byte> blocks(item.entry.elements() / block_values(item.type) * block_bytes(item.type));
    read_stored(item, blocks);
    return split_blocks(item.type, blocks, dtype, {weights, scales, mins});
  }

 private:
  void read_checked_part(std::string_view name, std::span<std::byte> bytes, std::size_t from) const override {
    const GgufItem& item = find(name);
    const std::size_t values = block_values(item.type), block = values * sizeof(float);
    if (is_in_order(item) && item.entry.type != StoredType::F32)
      return file_->read(item.stored, bytes, item.first / values * block_bytes(item.type) + from);
    if (!is_in_order(item) || from % block != 0 || bytes.size() % block != 0)
      return TensorSource::read_checked_part(name, bytes, from);
    std::vector<float> part(bytes.size() / sizeof(float));
    file_->read_f32(item.stored, part, item.first + from / sizeof(float));
    std::memcpy(bytes.data(), part.data(), bytes.size());
  }

  static bool is_in_order(const GgufItem& item) {
    return item.change == GgufChange::none || item.change == GgufChange::experts;
  }

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
      list(place->hugging_face(part), item);
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

  std::shared_ptr<const Gguf> file_;
  const GgufArchitecture& architecture_;
  std::optional<GgufHeads> heads_;
};

}  // namespace

std::unique_ptr<const TensorSource> gguf_weights(std::shared_ptr<const Gguf> file,
                                                 const GgufArchitecture& architecture) {
  return std::make_unique<GgufWeights>(std::move(file), architecture);
}

}  // namespace jerboa::models
