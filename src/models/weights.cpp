#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include <jerboa/base/error.h>
#include <jerboa/base/float16.h>
#include <jerboa/models/family.h>
#include <jerboa/models/quantise.h>

#include "base/browser_build.h"
#include "base/convert_floats.h"
#include "base/in_parallel.h"
#include "base/integers.h"
#include "base/parse_json.h"
#include "models/mxfp4.h"
#include "models/original_name.h"
#include "models/param_reads.h"
#include "models/round_for_products.h"
#include "models/transpose_matrices.h"

// From the tensors of a checkpoint to the parameters of a graph.
namespace jerboa::models {
namespace {

/// Tensors of equal shape that are stacked into a parameter.
struct Stored {
  std::vector<std::string> names;
  Sizes shape;
  bool quantised = false;   // already, in the file
  bool transposed = false;  // the file holds […, in, out], the parameter is […, out, in]
  bool packed = false;      // the file holds -1, 0 and 1, four to a byte
  bool mxfp4 = false;       // blocks and scales of [count, out, in] in place of [count, in, out]
};

constexpr std::int64_t mxfp4_group = 32;

// Row r of the bytes has, from its lowest bits on, rows r, r + n, r + 2n and r + 3n of the matrix, plus 1.
void unpack_ternary(std::span<const std::byte> bytes, std::span<float> values) {
  for (std::size_t part = 0; part < 4; ++part)
    for (std::size_t i = 0; i < bytes.size(); ++i)
      values[part * bytes.size() + i] = static_cast<float>((std::to_integer<int>(bytes[i]) >> 2 * part) & 3) - 1;
}

bool is_packed(const TensorSource& weights, const Family& family, const std::string& name, const Sizes& sizes) {
  if (!family.ternary || sizes.size() != 2 || sizes[0] % 4 != 0) return false;
  const TensorEntry& entry = weights.entry(name);
  return entry.type == StoredType::U8 && Sizes(entry.shape) == Sizes{sizes[0] / 4, sizes[1]};
}

Sizes shape_of_parts(const Sizes& whole, std::size_t count) {
  return {whole.at(0) * whole.at(1) / static_cast<std::int64_t>(count), whole.at(2)};
}

// Where checkpoints that also see or hear keep their text model.
std::vector<std::string> names_beside_towers(const std::string& name) {
  const std::string model = "model.";
  if (!name.starts_with(model)) return {"language_model." + name};  // the head
  const std::string rest = name.substr(model.size());
  return {"model.language_model." + rest, "language_model.model." + rest, "model.text_model." + rest};
}

// The names that checkpoints may have for a parameter: without a prefix that all of them share, beside the towers of
// other senses, and, in files from TensorFlow, with other names in layer norms.
std::vector<std::string> possible_names(const std::string& name, const Family& family) {
  std::vector<std::string> names{name};
  if (family.graphs.decoder)
    for (std::string& longer : names_beside_towers(name)) names.push_back(std::move(longer));
  if (!family.optional_prefix.empty() && name.starts_with(family.optional_prefix))
    names.push_back(name.substr(family.optional_prefix.size()));
  for (std::size_t i = 0, known = names.size(); i < known; ++i)
    for (const auto& [now, then] : {std::pair{".weight", ".gamma"}, std::pair{".bias", ".beta"}})
      if (names[i].ends_with(std::string("LayerNorm") + now))
        names.push_back(names[i].substr(0, names[i].rfind('.')) + then);
  return names;
}

// The names that the tensors may have which a parameter is stacked from.
std::vector<std::vector<std::string>> possible_parts(const std::string& name, const Shape& shape,
                                                     const Family& family) {
  std::vector<std::vector<std::string>> all;
  if (!family.parts) return all;
  for (const std::string& part : family.parts(name, shape)) {
    const std::vector<std::string> names = possible_names(part, family);
    all.resize(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) all[i].push_back(names[i]);
  }
  return all;
}

// A parameter that is missing from the checkpoint is requested under its own name.
Stored stored_as(const TensorSource& weights, const Family& family, const TensorInfo& param) {
  const auto is_there = [&](const std::string& name) { return weights.contains(name); };
  const Sizes sizes = evaluate(param.type.shape, {});
  if (!jerboa::is_float(param.type.dtype) && is_there(param.name)) return {{param.name}, sizes, true};
  const std::string name = original_name(param.name);
  const bool transposed = !jerboa::is_float(param.type.dtype) && family.stored_in_out && family.stored_in_out(name);
  Sizes stored = sizes;
  if (transposed) std::swap(stored.at(sizes.size() - 1), stored.at(sizes.size() - 2));
  for (const std::string& possible : possible_names(name, family))
    if (is_there(possible))
      return {{possible}, stored, false, transposed, is_packed(weights, family, possible, stored)};
  const auto parts = possible_parts(name, param.type.shape, family);
  for (const auto& possible : parts)
    if (std::any_of(possible.begin(), possible.end(), is_there))
      return {possible, shape_of_parts(sizes, possible.size())};
  if (is_there(name + std::string(mxfp4_blocks_suffix)))
    return {{name + std::string(mxfp4_blocks_suffix), name + std::string(mxfp4_scales_suffix)},
            stored,
            false,
            transposed,
            false,
            true};
  return {{name}, stored, false, transposed};
}

// Whether a parameter comes with a quantised weight.
bool is_part_of_quantised(const TensorInfo& param) {
  return param.name.ends_with(scales_suffix) || param.name.ends_with(mins_suffix);
}

/// Every parameter of a graph that is read from a file: the scales and minimums of quantised ones are not.
template <class Use>
void for_each_stored(const TensorSource& weights, const Graph& graph, const Family& family, Use use) {
  for (const TensorInfo& tensor : graph.tensors)
    if (tensor.storage == Storage::param && !is_part_of_quantised(tensor))
      use(tensor, stored_as(weights, family, tensor));
}

bool is_float(StoredType type) {
  return type == StoredType::F64 || type == StoredType::F32 || type == StoredType::F16 || type == StoredType::BF16;
}

void check_entry(const TensorSource& weights, const std::string& name, const Sizes& expected) {
  const TensorEntry& entry = weights.entry(name);
  if (!is_float(entry.type))
    throw FileError(fmt::format("{}: {} is {}, but weights must be F64, F32, F16 or BF16", weights.path().string(),
                                name, to_string(entry.type)));
  if (Sizes(entry.shape) != expected)
    throw FileError(fmt::format("{}: {} is {}, but config.json requires {}", weights.path().string(), name,
                                to_string(Sizes(entry.shape)), to_string(expected)));
}

void want_entry(const TensorSource& weights, const std::string& name, StoredType type, const Sizes& shape) {
  if (!weights.contains(name))
    throw FileError(fmt::format("{}: has no {}, which belongs to a quantised weight", weights.path().string(), name));
  const TensorEntry& entry = weights.entry(name);
  if (entry.type != type || Sizes(entry.shape) != shape)
    throw FileError(fmt::format("{}: {} is {}{}, but must be {}{}", weights.path().string(), name,
                                to_string(entry.type), to_string(Sizes(entry.shape)), to_string(type),
                                to_string(shape)));
}

Sizes shape_of_groups(Sizes weight) {
  weight.back() /= quantised_group;
  return weight;
}

/// A quantised weight of the file, with its scales and minimums.
void check_quantised(const TensorSource& weights, const TensorInfo& param, const Sizes& sizes) {
  const auto type = quantised_type(weights);
  const bool nibbles = param.type.dtype == DType::i4;
  const StoredType wanted = nibbles ? StoredType::U8 : StoredType::I8;
  if (!type || weights.entry(param.name).type != wanted)
    throw FileError(fmt::format(
        "{}: holds {} weights, but {} ones were asked for: leave out the type of the weights, "
        "or quantise the original again",
        weights.path().string(), type ? quantised_name(*type) : "quantised", quantised_name(param.type.dtype)));
  Sizes packed = sizes;
  if (nibbles) packed.back() /= 2;
  want_entry(weights, param.name, wanted, packed);
  const Sizes groups = shape_of_groups(sizes);
  want_entry(weights, original_name(param.name) + std::string(scales_suffix), StoredType::F16, groups);
  if (nibbles) want_entry(weights, original_name(param.name) + std::string(mins_suffix), StoredType::F16, groups);
}

/// Experts' weights in MXFP4.
void check_mxfp4(const TensorSource& weights, const Stored& stored) {
  if (stored.shape.size() != 3 || stored.shape[1] % mxfp4_group != 0)
    throw FileError(fmt::format("{}: {} cannot hold weights of shape {}", weights.path().string(), stored.names[0],
                                to_string(stored.shape)));
  const Sizes groups{stored.shape[0], stored.shape[2], stored.shape[1] / mxfp4_group};
  want_entry(weights, stored.names[0], StoredType::U8, {groups[0], groups[1], groups[2], mxfp4_group / 2});
  want_entry(weights, stored.names[1], StoredType::U8, groups);
}

/// One more than the largest number of a layer in the names of a checkpoint's tensors.
std::int64_t layers_in(const TensorSource& weights, const Family& family) {
  std::int64_t layers = 0;
  const std::vector<std::string> prefixes = possible_names(std::string(family.layer_prefix), family);
  for (const std::string& name : weights.names()) {
    std::string_view rest = name;
    const auto prefix = std::find_if(prefixes.begin(), prefixes.end(),
                                     [&](const std::string& possible) { return rest.starts_with(possible); });
    if (prefix == prefixes.end()) continue;
    rest.remove_prefix(prefix->size());
    std::int32_t layer = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
    if (error == std::errc() && layer >= 0 && end != rest.data() + rest.size() && *end == '.')
      layers = std::max(layers, std::int64_t{layer} + 1);
  }
  return layers;
}

/// Reads a tensor as the checkpoint holds it, if it is quantised there in the form that the graph needs.
bool keep_blocks(const TensorSource& weights, const std::string& name, std::size_t first, const QuantisedView& to) {
  const std::size_t elements = weights.entry(name).elements();
  const std::size_t group = quantised_group, per_byte = to.dtype == DType::i4 ? 2 : 1;
  const auto groups_of = [&](std::span<std::uint16_t> parts) {
    return parts.empty() ? parts : parts.subspan(first / group, elements / group);
  };
  return weights.read_quantised(name, to.dtype, to.weight.subspan(first / per_byte, elements / per_byte),
                                groups_of(to.scales), groups_of(to.mins));
}

std::optional<StoredType> stored_as_is(DType dtype) {
  switch (dtype) {
    case DType::f32: return StoredType::F32;
    case DType::f16: return StoredType::F16;
    case DType::bf16: return StoredType::BF16;
    default: return std::nullopt;
  }
}

/// Memory for one parameter after another. What was there before is lost.
class ReusedBytes {
 public:
  std::span<std::byte> of(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      memory_.reset(new std::byte[bytes]);  // without clearing it
      size_ = bytes;
    }
    return {memory_.get(), bytes};
  }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::size_t size_ = 0;
};

/// The time that threads spend on one kind of work.
class Stopwatch {
 public:
  template <class Work>
  void time(const Work& work) {
    if (detail::is_browser_build) return work();  // nobody asks
    const auto start = std::chrono::steady_clock::now();
    work();
    nanoseconds_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  }
  double seconds() const { return static_cast<double>(nanoseconds_) * 1e-9; }

 private:
  std::atomic<std::int64_t> nanoseconds_ = 0;
};

constexpr std::size_t most_parts = 3;  // a quantised weight with its scales and minimums
using PartMemory = std::array<std::span<std::byte>, most_parts>;

/// What is put on the device for a parameter: of a quantised weight also its scales and minimums.
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

std::span<std::uint16_t> halves(std::span<std::byte> bytes) {
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

/// Called for pieces of a tensor in f32, from its element `first` on.
using UsePiece = std::function<void(std::size_t first, std::span<const float> values)>;
/// Quantises whole rows with what they are multiplied with in view.
using RoundRows = std::function<void(std::span<const float> values, std::int64_t in, const GroupWriter& writer)>;

/// Reads parameters into reused memory, or into that of the caller. All threads share the elements of a tensor: each
/// reads a piece of it, which stays in its cache until it is converted.
class Reader {
 public:
  explicit Reader(const TensorSource& weights) : weights_(weights) {}

  /// The values are valid until the next call.
  std::vector<ParamValues> read(const TensorInfo& param, const Stored& stored, const PartMemory& memory,
                                const RoundRows& round = {}) {
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

  ReadSeconds seconds() const { return {reading_.seconds(), converting_.seconds()}; }

 private:
  static constexpr std::size_t piece = std::size_t{1} << 15;  // elements: whole blocks of every type

  void read_bytes(const std::string& name, std::span<std::byte> to) {
    constexpr std::int64_t least_pieces = 4;  // for which a thread pays
    if (!weights_.reads_parts(name)) return reading_.time([&] { weights_.read(name, to); });
    const TensorEntry& entry = weights_.entry(name);
    const std::size_t piece_bytes = piece * size_of(entry.type);
    detail::in_parallel(pieces_of(entry.elements()), least_pieces, [&](std::int64_t number, std::int64_t end) {
      const std::size_t first = static_cast<std::size_t>(number) * piece_bytes;
      const auto part = to.subspan(first, std::min(static_cast<std::size_t>(end) * piece_bytes, to.size()) - first);
      reading_.time([&] { weights_.read_part(name, part, first); });
    });
  }

  void read_floats(const Stored& stored, DType dtype, std::span<std::byte> to) {
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
    for_each_tensor(stored, [&](const Stored& tensor) { done += for_each_piece(tensor, put); });
  }

  void quantise(const Stored& stored, std::int64_t in, const QuantisedView& to, const RoundRows& round) {
    const GroupWriter writer(to, 0);
    std::size_t done = 0;
    const UsePiece put = [&](std::size_t at, std::span<const float> values) {
      quantise_groups(values, static_cast<std::int64_t>((done + at) / quantised_group), writer);
    };
    for_each_tensor(stored, [&](const Stored& tensor) {
      const bool is_plain = !tensor.packed && !tensor.transposed && !tensor.mxfp4;
      if (is_plain && keep_blocks(weights_, tensor.names[0], done, to)) {
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

  template <class Use>
  static void for_each_tensor(const Stored& stored, const Use& use) {
    if (stored.mxfp4) return use(stored);
    for (const std::string& name : stored.names) {
      Stored one = stored;
      one.names = {name};
      use(one);
    }
  }

  /// Goes through a tensor on all threads. Returns the number of elements.
  std::size_t for_each_piece(const Stored& tensor, const UsePiece& use) {
    if (tensor.mxfp4) {
      std::size_t done = 0;
      for_each_expert(tensor, [&](std::span<const float> values) {
        use_pieces(values, [&](std::size_t at, std::span<const float> part) { use(done + at, part); });
        done += values.size();
      });
      return done;
    }
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

  void use_pieces(std::span<const float> values, const UsePiece& use) {
    detail::in_parallel(pieces_of(values.size()), 1, [&](std::int64_t number, std::int64_t end) {
      const std::size_t first = static_cast<std::size_t>(number) * piece;
      const std::size_t last = std::min(static_cast<std::size_t>(end) * piece, values.size());
      converting_.time([&] { use(first, values.subspan(first, last - first)); });
    });
  }

  static std::int64_t pieces_of(std::size_t elements) {
    return static_cast<std::int64_t>(detail::divide_up(elements, piece));
  }

  /// A whole tensor in f32, in the parameter's order.
  std::span<const float> wide(const Stored& tensor) {
    const auto values = in_order_of_file(tensor);
    return tensor.transposed ? turned(values, tensor.shape[tensor.shape.size() - 2], tensor.shape.back()) : values;
  }

  /// Matrices one after another, each transposed.
  std::span<const float> turned(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
    turned_.resize(values.size());
    transpose_matrices(values, rows, columns, turned_);
    return turned_;
  }

  /// Calls use(values) for each expert of a stack in MXFP4, so that only one of them is in memory as f32.
  template <class Use>
  void for_each_expert(const Stored& stored, const Use& use) {
    const auto blocks = raw(stored.names[0]);
    std::vector<std::byte> scales(weights_.entry(stored.names[1]).bytes);
    read_bytes(stored.names[1], scales);
    const auto count = static_cast<std::size_t>(stored.shape[0]);
    const std::size_t block_bytes = blocks.size() / count, scale_bytes = scales.size() / count;
    std::vector<float> expert(2 * block_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      dequantise_mxfp4(blocks.subspan(i * block_bytes, block_bytes),
                       std::span(scales).subspan(i * scale_bytes, scale_bytes), expert);
      use(stored.transposed ? std::span<const float>(expert) : turned(expert, stored.shape[2], stored.shape[1]));
    }
  }

  std::span<const std::byte> raw(const std::string& name) {
    const auto bytes = raw_.of(weights_.entry(name).bytes);
    read_bytes(name, bytes);
    return bytes;
  }

  std::span<const float> in_order_of_file(const Stored& tensor) {
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

  const TensorSource& weights_;
  std::array<ReusedBytes, most_parts> buffers_;
  ReusedBytes raw_;
  std::vector<float> wide_, turned_;
  Stopwatch reading_, converting_;
};

}  // namespace

void check_layers(const TensorSource& weights, const Config& config, const Family& family) {
  const std::string key(family.layer_count);
  if (!config.has(key)) return;  // the graph says so, unless it counts its layers otherwise
  const std::int64_t stored = layers_in(weights, family);
  if (config.count(key) <= stored) return;
  const auto names = weights.names();
  const std::string example = names.empty() ? "it has no tensors" : "its first tensor is " + in_quotes(names.front());
  throw FileError(fmt::format("{}: {} is {}, but {} has the weights {}N.… of {} layers ({})", config.origin(), key,
                              config.count(key), weights.path().string(), family.layer_prefix, stored, example));
}

void check_params(const TensorSource& weights, const Graph& graph, const Family& family) {
  constexpr std::size_t most_shown = 3;
  std::vector<std::string> missing;
  std::size_t missing_count = 0;
  for_each_stored(weights, graph, family, [&](const TensorInfo& param, const Stored& stored) {
    if (stored.quantised) return check_quantised(weights, param, stored.shape);
    if (stored.packed) return;
    if (stored.mxfp4) return check_mxfp4(weights, stored);
    for (const std::string& name : stored.names)
      if (weights.contains(name))
        check_entry(weights, name, stored.shape);
      else if (++missing_count <= most_shown)
        missing.push_back(name);
  });
  if (missing_count == 0) return;
  const auto type = quantised_type(weights);
  throw FileError(fmt::format(
      "{}: has no {}{}{}", weights.path().string(), fmt::join(missing, ", "),
      missing_count > most_shown ? fmt::format(" and {} more that config.json asks for", missing_count - most_shown)
                                 : "",
      type ? fmt::format("; its weights are {} and cannot be had in another type", quantised_name(*type)) : ""));
}

namespace {

/// Reads a parameter on a thread of its own, so that the one before it can be used meanwhile. Without threads it is
/// read at once.
class ReadAhead {
 public:
  template <class Read>
  explicit ReadAhead(const Read& read) {
    const auto work = [this, read] {
      try {
        values_ = read();
      } catch (...) {
        error_ = std::current_exception();
      }
    };
    try {
      thread_ = std::thread(work);
    } catch (const std::system_error&) {
      work();
    }
  }
  ReadAhead(const ReadAhead&) = delete;
  ~ReadAhead() {
    if (thread_.joinable()) thread_.join();
  }

  std::vector<ParamValues> take() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
    return std::move(values_);
  }

 private:
  std::vector<ParamValues> values_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace

void for_each_param(const TensorSource& weights, const Graph& graph, const Family& family,
                    const std::function<void(const ParamValues& values)>& use, const ReadOptions& options) {
  check_params(weights, graph, family);
  std::vector<std::pair<const TensorInfo*, Stored>> params;
  for_each_stored(weights, graph, family,
                  [&](const TensorInfo& param, Stored stored) { params.emplace_back(&param, std::move(stored)); });
  std::array<Reader, 2> readers{Reader(weights), Reader(weights)};  // of the parameter in use, and of the next
  const auto memory_for = [&](std::size_t i) {
    PartMemory memory;
    if (!options.memory || i >= params.size()) return memory;
    const std::vector<ParamValues> parts = parts_of(*params[i].first);
    for (std::size_t part = 0; part < parts.size(); ++part) memory[part] = options.memory(parts[part].name);
    return memory;
  };
  const auto read = [&](std::size_t i, const PartMemory& memory) {
    const auto& [param, stored] = params[i];
    const ProductInputs* inputs = options.inputs ? options.inputs(original_name(param->name)) : nullptr;
    if (inputs == nullptr) return readers[i % 2].read(*param, stored, memory);
    return readers[i % 2].read(*param, stored, memory, [&](auto matrix, std::int64_t in, const GroupWriter& writer) {
      round_for_products(matrix, in, *inputs, writer);
    });
  };
  const bool reads_ahead = !options.inputs;  // they are computed when they are asked for, on all threads
  std::vector<ParamValues> values;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (i == 0 || !reads_ahead) values = read(i, memory_for(i));
    std::optional<ReadAhead> next;
    if (reads_ahead && i + 1 < params.size())
      next.emplace([&read, i, memory = memory_for(i + 1)] { return read(i + 1, memory); });
    for (const ParamValues& part : values) use(part);
    if (next) values = next->take();
  }
  if (options.seconds == nullptr) return;
  for (const Reader& reader : readers) {
    options.seconds->reading += reader.seconds().reading;
    options.seconds->converting += reader.seconds().converting;
  }
}

std::vector<ParamReads> param_reads(const TensorSource& weights, const Graph& graph, const Family& family) {
  std::vector<ParamReads> all;
  for_each_stored(weights, graph, family, [&](const TensorInfo& param, const Stored& stored) {
    ParamReads reads{param.name, stored.names};
    const std::string original = original_name(param.name);
    if (stored.quantised) {
      reads.tensors.push_back(original + std::string(scales_suffix));
      if (param.type.dtype == DType::i4) reads.tensors.push_back(original + std::string(mins_suffix));
    }
    const bool plain = !stored.quantised && !stored.transposed && !stored.packed && !stored.mxfp4;
    if (plain && stored.names.size() == 1 && stored.shape.size() == 2) reads.rows = stored.shape[0];
    all.push_back(std::move(reads));
  });
  return all;
}

void read_param(const TensorSource& weights, const TensorInfo& param, const Family& family,
                const std::function<void(const ParamValues& values)>& use) {
  Reader reader(weights);
  for (const ParamValues& values : reader.read(param, stored_as(weights, family, param), {})) use(values);
}

DType usual_weights(const TensorSource& weights) {
  if (const auto quantised = quantised_type(weights)) return *quantised;
  std::size_t f16 = 0, bf16 = 0, all = 0;
  for (const std::string& name : weights.names()) {
    const TensorEntry& entry = weights.entry(name);
    all += entry.elements();
    f16 += entry.type == StoredType::F16 ? entry.elements() : 0;
    bf16 += entry.type == StoredType::BF16 ? entry.elements() : 0;
  }
  return 2 * f16 > all ? DType::f16 : 2 * bf16 > all ? DType::bf16 : DType::f32;
}

std::map<std::string, HostTensor> read_params(const TensorSource& weights, const Graph& graph, const Family& family,
                                              const KnownInputs& inputs) {
  std::map<std::string, HostTensor> params;
  for_each_param(weights, graph, family,
                 [&](const ParamValues& values) {
                   HostTensor copy(values.dtype, values.shape);
                   std::copy(values.bytes.begin(), values.bytes.end(), copy.bytes().begin());
                   params.emplace(values.name, std::move(copy));
                 },
                 {.inputs = inputs});
  return params;
}

}  // namespace jerboa::models
