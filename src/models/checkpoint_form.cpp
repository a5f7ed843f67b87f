#include "models/checkpoint_form.h"

#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/models/quantise.h>

#include "models/listed_tensors.h"
#include "models/original_name.h"
#include "models/transpose_matrices.h"

namespace jerboa::models {
namespace {

/// The values of quantised weights.
void dequantise(std::span<const std::byte> weights, bool nibbles, std::span<const float> scales,
                std::span<const float> mins, std::span<float> values) {
  constexpr std::size_t group = quantised_group, half = group / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t number = i / group, within = i % group;
    int integer = 0;
    if (nibbles) {
      const auto byte = std::to_integer<int>(weights[number * half + within % half]);
      integer = (within < half ? byte & 15 : byte >> 4) - 8;
    } else {
      integer = std::to_integer<std::int8_t>(weights[i]);
    }
    values[i] = static_cast<float>(integer) * scales[number] + (mins.empty() ? 0 : mins[number]);
  }
}

/// A tensor of the checkpoint: a whole parameter, or a part of it that begins at element `first`.
struct CheckpointItem {
  std::string param;
  bool quantised = false, transposed = false;
  std::size_t first = 0;
  TensorEntry entry;
};

class CheckpointForm final : public ListedTensors<CheckpointItem> {
 public:
  CheckpointForm(const TensorSource& params, const Family& family) : params_(params), family_(family) {
    for (const std::string& name : params_.names())
      if (!name.ends_with(scales_suffix) && !name.ends_with(mins_suffix)) add(name);
  }

  const std::filesystem::path& path() const override { return params_.path(); }

  void read(std::string_view name, std::span<std::byte> bytes) const override {
    const Item& item = find(name);
    if (!item.quantised) return params_.read_part(item.param, bytes, item.first * size_of(item.entry.type));
    std::vector<float> values(item.entry.elements());
    read_f32(name, values);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }

  void read_f32(std::string_view name, std::span<float> values) const override {
    const Item& item = find(name);
    if (item.quantised) return read_dequantised(item, values);
    std::vector<std::byte> bytes(item.entry.bytes);
    read(name, bytes);
    to_f32({std::string(name), item.entry.type, item.entry.shape, bytes}, values);
  }

 private:
  using Item = CheckpointItem;

  void add(const std::string& param) {
    Item item{.param = param, .entry = params_.entry(param)};
    const std::string name = original_name(param);
    item.quantised = name != param;
    if (item.quantised) {
      if (item.entry.type == StoredType::U8) item.entry.shape.back() *= 2;
      item.transposed = family_.stored_in_out && family_.stored_in_out(name);
      auto& shape = item.entry.shape;
      if (item.transposed) std::swap(shape.at(shape.size() - 1), shape.at(shape.size() - 2));
      std::size_t elements = 1;
      for (const std::int64_t size : shape) elements *= static_cast<std::size_t>(size);
      item.entry = {StoredType::F32, shape, elements * sizeof(float)};
    }
    const auto& shape = item.entry.shape;
    std::vector<std::string> parts;
    if (family_.parts && shape.size() == 3) parts = family_.parts(name, Shape(shape.begin(), shape.end()));
    if (parts.empty()) {
      list(name, std::move(item));
      return;
    }
    const auto count = static_cast<std::int64_t>(parts.size());
    const std::size_t elements = item.entry.elements() / parts.size();
    item.entry = {item.entry.type, {shape[0] * shape[1] / count, shape[2]}, item.entry.bytes / parts.size()};
    for (const std::string& part : parts) {
      list(part, item);
      item.first += elements;
    }
  }

  /// The scales or minimums of the elements from `first` on; empty if the parameter has none.
  std::vector<float> groups(const std::string& name, std::size_t first, std::size_t elements) const {
    if (!params_.contains(name)) return {};
    const TensorEntry& entry = params_.entry(name);
    const std::size_t size = size_of(entry.type), count = elements / quantised_group;
    if ((first + elements) / quantised_group > entry.elements())
      throw FileError(fmt::format("{}: {} does not fit its weight", path().string(), name));
    std::vector<std::byte> bytes(count * size);
    params_.read_part(name, bytes, first / quantised_group * size);
    return to_f32({name, entry.type, {static_cast<std::int64_t>(count)}, bytes});
  }

  void read_dequantised(const Item& item, std::span<float> values) const {
    const std::string name = original_name(item.param);
    const TensorEntry& stored = params_.entry(item.param);
    const bool nibbles = stored.type == StoredType::U8;
    const std::size_t per_byte = nibbles ? 2 : 1;
    std::vector<std::byte> weights(values.size() / per_byte);
    params_.read_part(item.param, weights, item.first / per_byte);
    const auto scales = groups(name + std::string(scales_suffix), item.first, values.size());
    const auto mins = groups(name + std::string(mins_suffix), item.first, values.size());
    if (scales.empty()) throw FileError(fmt::format("{}: has no scales of {}", path().string(), name));
    dequantise(weights, nibbles, scales, mins, values);
    if (!item.transposed) return;
    const auto& shape = item.entry.shape;  // […, in, out], where the parameter is […, out, in]
    const std::vector<float> copy(values.begin(), values.end());
    transpose_matrices(copy, shape.back(), shape.at(shape.size() - 2), values);
  }

  const TensorSource& params_;
  const Family& family_;
};

}  // namespace

std::unique_ptr<const TensorSource> in_checkpoint_form(const TensorSource& params, const Family& family) {
  return std::make_unique<CheckpointForm>(params, family);
}

}  // namespace jerboa::models
