#include "models/param_reader.h"

#include <algorithm>
#include <optional>

#include <jerboa/base/float16.h>

#include "base/convert_floats.h"
#include "base/in_parallel.h"
#include "base/integers.h"
#include "models/mxfp4.h"
#include "models/original_name.h"
#include "models/transpose_matrices.h"

namespace jerboa::models {
namespace {

constexpr std::size_t piece = std::size_t{1} << 15;  // elements: whole blocks of every type

std::int64_t pieces_of(std::size_t elements) { return static_cast<std::int64_t>(detail::divide_up(elements, piece)); }

// Each byte packs four values: row r of the bytes has rows r, r + n, r + 2n and r + 3n of the matrix, plus 1, from its
// lowest bits on.
void unpack_ternary(std::span<const std::byte> bytes, std::span<float> values) {
  for (std::size_t part = 0; part < 4; ++part)
    for (std::size_t i = 0; i < bytes.size(); ++i)
      values[part * bytes.size() + i] = static_cast<float>((std::to_integer<int>(bytes[i]) >> 2 * part) & 3) - 1;
}

std::optional<StoredType> stored_as_is(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::F32;
    case DType::f16: return StoredType::F16;
    case DType::bf16: return StoredType::BF16;
    default: return std::nullopt;
  }
}

std::span<std::uint16_t> halves(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

template <class Use>
void for_each_tensor(const StoredParam& stored, const Use& use) {
  if (stored.mxfp4) return use(stored);
  for (const std::string& name : stored.names) {
    StoredParam one = stored;
    one.names = {name};
    use(one);
  }
}

}  // namespace

std::vector<ParamValues> parts_of(const TensorInfo& param) {
  const Sizes sizes = evaluate(param.type.shape, {});
  const DType dtype = param.type.dtype;
  std::vector<ParamValues> parts{{param.name, dtype, sizes, {}}};
  if (jerboa::is_float(dtype)) return parts;
  const std::string original = original_name(param.name);
  parts.push_back({original + std::string(scales_suffix), DType::f16, shape_of_groups(sizes), {}});
  if (dtype == DType::i4)
    parts.push_back({original + std::string(mins_suffix), DType::f16, shape_of_groups(sizes), {}});
  return parts;
}

std::vector<ParamValues> ParamReader::read(const TensorInfo& param, const StoredParam& stored, const PartMemory& memory,
                                           const RoundRows& round) {
  std::vector<ParamValues> parts = parts_of(param);
  PartMemory to;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(bytes_of(parts[i].dtype, element_count(parts[i].shape)));
    parts[i].is_in_place = memory[i].size() == bytes && bytes > 0;
    to[i] = parts[i].is_in_place ? memory[i] : buffers_[i].of(bytes);
    parts[i].bytes = to[i];
  }
  if (stored.quantised)
    for (std::size_t i = 0; i < parts.size(); ++i) read_bytes(parts[i].name, to[i]);
  else if (jerboa::is_float(param.type.dtype))
    read_floats(stored, param.type.dtype, to[0]);
  else
    quantise(stored, parts[0].shape.back(), {param.type.dtype, to[0], halves(to[1]), halves(to[2])}, round);
  return parts;
}

void ParamReader::read_bytes(const std::string& name, std::span<std::byte> to) {
  constexpr std::int64_t least_pieces = 4;  // fewer do not pay for a thread
  if (!weights_.reads_parts(name)) return reading_.time([&] { weights_.read(name, to); });
  const TensorEntry& entry = weights_.entry(name);
  const std::size_t piece_bytes = piece * size_of(entry.type);
  detail::in_parallel(pieces_of(entry.elements()), least_pieces, [&](std::int64_t number, std::int64_t end) {
    const std::size_t first = static_cast<std::size_t>(number) * piece_bytes;
    const auto part = to.subspan(first, std::min(static_cast<std::size_t>(end) * piece_bytes, to.size()) - first);
    reading_.time([&] { weights_.read_part(name, part, first); });
  });
}

void ParamReader::read_floats(const StoredParam& stored, DType dtype, std::span<std::byte> to) {
  if (stored.names.size() == 1 && weights_.entry(stored.names[0]).type == stored_as_is(dtype))
    return read_bytes(stored.names[0], to);
  const std::size_t size = bits(dtype) / 8;
  std::size_t done = 0;
  const UsePiece put = [&](std::size_t at, std::span<const float> values) {
    const auto place = to.subspan((done + at) * size, values.size() * size);
    if (dtype == DType::f16) return detail::narrow_to_f16(values, place);
    if (dtype == DType::bf16) return detail::narrow_to_bf16(values, place);
    std::copy_n(std::as_bytes(values).begin(), place.size(), place.begin());
  };
  for_each_tensor(stored, [&](const StoredParam& tensor) { done += for_each_piece(tensor, put); });
}

void ParamReader::quantise(const StoredParam& stored, std::int64_t in, const QuantisedView& to,
                           const RoundRows& round) {
  const GroupWriter writer(to, 0);
  std::size_t done = 0;
  const UsePiece put = [&](std::size_t at, std::span<const float> values) {
    quantise_groups(values, static_cast<std::int64_t>((done + at) / quantised_group), writer);
  };
  for_each_tensor(stored, [&](const StoredParam& tensor) {
    const bool is_plain = !tensor.packed && !tensor.transposed && !tensor.mxfp4;
    if (is_plain && keep_blocks(tensor.names[0], done, to)) {
      done += weights_.entry(tensor.names[0]).elements();
    } else if (round && !tensor.mxfp4) {
      const auto values = wide(tensor);
      round(values, in, {to, static_cast<std::int64_t>(done / quantised_group)});
      done += values.size();
    } else {
      done += for_each_piece(tensor, put);
    }
  });
}

// Copies quantised blocks from the checkpoint unchanged, if they already have the form that the graph needs.
bool ParamReader::keep_blocks(const std::string& name, std::size_t first, const QuantisedView& to) const {
  const std::size_t elements = weights_.entry(name).elements();
  const std::size_t group = quantised_group, per_byte = to.dtype == DType::i4 ? 2 : 1;
  const auto groups_of = [&](std::span<std::uint16_t> parts) {
    return parts.empty() ? parts : parts.subspan(first / group, elements / group);
  };
  return weights_.read_quantised(name, to.dtype, to.weight.subspan(first / per_byte, elements / per_byte),
                                 groups_of(to.scales), groups_of(to.mins));
}

// Processes a tensor on all threads. Returns the number of elements.
std::size_t ParamReader::for_each_piece(const StoredParam& tensor, const UsePiece& use) {
  if (tensor.mxfp4) return for_each_piece_of_experts(tensor, use);
  const std::string& name = tensor.names[0];
  if (tensor.packed || tensor.transposed || !weights_.reads_parts(name)) {
    const auto values = wide(tensor);
    use_pieces(values, use);
    return values.size();
  }
  const TensorEntry& entry = weights_.entry(name);
  const std::size_t elements = entry.elements(), size = size_of(entry.type);
  detail::in_parallel(pieces_of(elements), 1, [&](std::int64_t number, std::int64_t end) {
    std::vector<std::byte> bytes(std::min(piece, elements) * size);
    std::vector<float> values(std::min(piece, elements));
    for (; number < end; ++number) {
      const std::size_t first = static_cast<std::size_t>(number) * piece, count = std::min(piece, elements - first);
      const auto stored = std::span(bytes).first(count * size);
      reading_.time([&] { weights_.read_part(name, stored, first * size); });
      converting_.time([&] {
        to_f32({name, entry.type, {static_cast<std::int64_t>(count)}, stored}, std::span(values).first(count));
        use(first, std::span<const float>(values).first(count));
      });
    }
  });
  return elements;
}

void ParamReader::use_pieces(std::span<const float> values, const UsePiece& use) {
  detail::in_parallel(pieces_of(values.size()), 1, [&](std::int64_t number, std::int64_t end) {
    const std::size_t first = static_cast<std::size_t>(number) * piece;
    const std::size_t last = std::min(static_cast<std::size_t>(end) * piece, values.size());
    converting_.time([&] { use(first, values.subspan(first, last - first)); });
  });
}

// Processes a stack of MXFP4 experts with only one of them at a time in memory as f32.
std::size_t ParamReader::for_each_piece_of_experts(const StoredParam& stored, const UsePiece& use) {
  const auto blocks = raw(stored.names[0]);
  std::vector<std::byte> scales(weights_.entry(stored.names[1]).bytes);
  read_bytes(stored.names[1], scales);
  const auto count = static_cast<std::size_t>(stored.shape[0]);
  const std::size_t block_bytes = blocks.size() / count, scale_bytes = scales.size() / count;
  std::vector<float> expert(2 * block_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    dequantise_mxfp4(blocks.subspan(i * block_bytes, block_bytes),
                     std::span(scales).subspan(i * scale_bytes, scale_bytes), expert);
    const std::span<const float> values =
        stored.transposed ? std::span<const float>(expert) : transposed(expert, stored.shape[2], stored.shape[1]);
    use_pieces(values, [&](std::size_t at, std::span<const float> part) { use(i * expert.size() + at, part); });
  }
  return count * expert.size();
}

// A whole tensor in f32, in the order of the parameter.
std::span<const float> ParamReader::wide(const StoredParam& tensor) {
  const auto values = in_order_of_file(tensor);
  return tensor.transposed ? transposed(values, tensor.shape[tensor.shape.size() - 2], tensor.shape.back()) : values;
}

std::span<const float> ParamReader::in_order_of_file(const StoredParam& tensor) {
  const std::string& name = tensor.names[0];
  if (tensor.packed) {
    const auto packed = raw(name);
    wide_.resize(4 * packed.size());
    unpack_ternary(packed, wide_);
    return wide_;
  }
  wide_.resize(weights_.entry(name).elements());
  reading_.time([&] { weights_.read_f32(name, wide_); });
  return wide_;
}

// Transposes matrices that are stored one after another.
std::span<const float> ParamReader::transposed(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  transposed_.resize(values.size());
  transpose_matrices(values, rows, columns, transposed_);
  return transposed_;
}

std::span<const std::byte> ParamReader::raw(const std::string& name) {
  const auto bytes = raw_.of(weights_.entry(name).bytes);
  read_bytes(name, bytes);
  return bytes;
}

}  // namespace jerboa::models
