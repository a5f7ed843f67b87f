#include <algorithm>
#include <fmt/format.h>
#include <vector>

#include <jerboa/base/atomic_file.h>
#include <jerboa/base/error.h>
#include <jerboa/io/safetensors_writer.h>

#include "base/convert_floats.h"
#include "base/stable_sort.h"
#include "io/safetensors_header.h"

namespace jerboa {
namespace {

bool is_float(StoredType type) {
  return type == StoredType::F64 || type == StoredType::F32 || type == StoredType::F16 || type == StoredType::BF16;
}

std::vector<io::TensorPlace> places_of(const TensorSource& tensors, std::optional<StoredType> floats) {
  std::vector<io::TensorPlace> places;
  for (const std::string& name : tensors.names()) {
    const TensorEntry& entry = tensors.entry(name);
    const StoredType type = floats && is_float(entry.type) ? *floats : entry.type;
    places.push_back({name, type, entry.shape, 0, entry.elements() * size_of(type)});
  }
  // Larger elements first, like the reference implementation, so that every tensor is aligned.
  detail::stable_sort(places, [](const auto& a, const auto& b) { return size_of(a.type) > size_of(b.type); });
  return places;
}

void write_tensor(AtomicFile& file, const TensorSource& tensors, const io::TensorPlace& place) {
  const TensorEntry& entry = tensors.entry(place.name);
  if (entry.type == place.type) {
    std::vector<std::byte> bytes(entry.bytes);
    tensors.read(place.name, bytes);
    return file.write(bytes);
  }
  std::vector<float> values(entry.elements());
  tensors.read_f32(place.name, values);
  if (place.type == StoredType::F32) return file.write(std::as_bytes(std::span(values)));
  std::vector<std::byte> halves(values.size() * sizeof(std::uint16_t));
  (place.type == StoredType::BF16 ? detail::narrow_to_bf16 : detail::narrow_to_f16)(values, halves);
  file.write(halves);
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const TensorSource& tensors, std::optional<StoredType> floats,
                       const std::map<std::string, std::string>& metadata) {
  if (floats && (!is_float(*floats) || *floats == StoredType::F64))
    throw UsageError(fmt::format("tensors can be written as F32, F16 or BF16, not as {}", to_string(*floats)));
  const std::vector<io::TensorPlace> places = places_of(tensors, floats);
  const std::string header = io::encode_header(places, metadata);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(header)));
  for (const io::TensorPlace& place : places) write_tensor(file, tensors, place);
  file.commit();
}

}  // namespace jerboa
