#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <jerboa/base/error.h>

#include "base/parse_json.h"
#include "base/stable_sort.h"

namespace jerboa::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference implementation's limit
constexpr std::string_view metadata_key = "__metadata__";

/// `bytes_read` includes the byte that caused the error.
[[noreturn]] void fail_as_json(const std::string& file, std::string_view what, std::size_t bytes_read,
                               const nlohmann::detail::exception& error) {
  throw FileError(
      fmt::format("{}: {} is not valid JSON, at byte {}: {}", file, what, bytes_read - 1, json_reason(error)));
}

struct Range {
  std::uint64_t begin = 0, end = 0;
};

struct TensorRecord {
  StoredType type{};
  std::vector<std::int64_t> shape;
  Range range;
};

/// The size in bytes; nullopt if it exceeds 63 bits. The sizes of an empty tensor must fit too, so that strides cannot
/// overflow later.
std::optional<std::uint64_t> bytes_of(StoredType type, const std::vector<std::int64_t>& shape) {
  auto bytes = static_cast<std::int64_t>(size_of(type));
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0)
      empty = true;
    else if (__builtin_mul_overflow(bytes, size, &bytes))
      return std::nullopt;
  }
  return empty ? 0 : static_cast<std::uint64_t>(bytes);
}

/// Reads the header as a stream of events, each of which is either expected at that point or an error, so that a deeply
/// nested or repetitive header needs no memory.
class JsonHeaderReader final : public nlohmann::json_sax<json> {
 public:
  explicit JsonHeaderReader(const std::string& file) : file_(file) {}

  std::map<std::string, TensorRecord> tensors;
  std::map<std::string, std::string> metadata;

  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool number_integer(std::int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string& text) override { return refuse("the number " + shortened(text, 40)); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) return refuse("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail(fmt::format("{}: the number {} is too large", where(), value));
    if (place_ == Place::shape)
      tensor_.shape.push_back(static_cast<std::int64_t>(value));
    else if (offsets_read_ == 2)
      fail(fmt::format("{}: data_offsets holds more than two numbers", name_in_errors()));
    else
      (offsets_read_++ == 0 ? tensor_.range.begin : tensor_.range.end) = value;
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata) {
      metadata.at(field_) = std::move(value);
    } else if (place_ == Place::tensor && field_ == "dtype") {
      const auto type = stored_type_from_string(value);
      if (!type) fail(fmt::format("{}: unknown type {}", where(), in_quotes(value)));
      tensor_.type = *type;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) {
      place_ = Place::top;
    } else if (place_ == Place::top) {
      place_ = name_ == metadata_key ? Place::metadata : Place::tensor;
      tensor_ = {};
      fields_.clear();
      field_.clear();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& key) override {
    if (place_ == Place::top) {
      const bool again = key == metadata_key ? std::exchange(metadata_seen_, true) : tensors.contains(key);
      if (again) fail(fmt::format("the name {} occurs twice", in_quotes(key)));
      name_ = std::move(key);
      return true;
    }
    const bool added = place_ == Place::metadata ? metadata.try_emplace(key).second : fields_.insert(key).second;
    if (!added) fail(fmt::format("{}: {} occurs twice", name_in_errors(), in_quotes(key)));
    if (place_ == Place::tensor && key != "dtype" && key != "shape" && key != "data_offsets")
      fail(fmt::format("{}: unknown field {}", name_in_errors(), in_quotes(key)));
    field_ = std::move(key);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      for (const auto* field : {"dtype", "shape", "data_offsets"})
        if (!fields_.contains(field)) fail(fmt::format("{} has no {}", name_in_errors(), field));
      tensors.emplace(std::move(name_), std::move(tensor_));
    }
    place_ = Place::top;
    field_.clear();
    name_.clear();
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::tensor && field_ == "shape")
      place_ = Place::shape;
    else if (place_ == Place::tensor && field_ == "data_offsets")
      place_ = Place::offsets;
    else
      refuse("an array");
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && std::exchange(offsets_read_, 0) != 2)
      fail(fmt::format("{}: data_offsets holds fewer than two numbers", name_in_errors()));
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    fail_as_json(file_, "the header", sizeof(std::uint64_t) + position, error);
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets };

  [[noreturn]] void fail(std::string_view what) const { throw FileError(fmt::format("{}: {}", file_, what)); }

  bool refuse(std::string_view found) const { fail(fmt::format("{} is {}, not {}", where(), found, wanted())); }

  std::string name_in_errors() const {
    return name_ == metadata_key ? std::string(metadata_key) : "tensor " + in_quotes(name_);
  }

  std::string where() const {
    switch (place_) {
      case Place::start: return "the header";
      case Place::top: return name_in_errors();
      case Place::metadata: return fmt::format("{}: {}", metadata_key, in_quotes(field_));
      case Place::tensor: return fmt::format("{}: {}", name_in_errors(), field_);
      case Place::shape:
      case Place::offsets: return fmt::format("{}: a value of {}", name_in_errors(), field_);
    }
    return {};
  }

  std::string_view wanted() const {
    switch (place_) {
      case Place::start:
      case Place::top: return "an object";
      case Place::metadata: return "a string";
      case Place::tensor: return field_ == "dtype" ? "a string" : "an array";
      case Place::shape:
      case Place::offsets: return "a whole number";
    }
    return {};
  }

  const std::string& file_;
  Place place_ = Place::start;
  bool metadata_seen_ = false;
  std::string name_, field_;
  std::set<std::string, std::less<>> fields_;
  TensorRecord tensor_;
  int offsets_read_ = 0;
};

void check_size(const std::string& file, const std::string& name, const TensorRecord& tensor,
                std::uint64_t data_bytes) {
  const auto fail = [&](std::string_view what) {
    throw FileError(fmt::format("{}: tensor {}: {}", file, in_quotes(name), what));
  };
  const auto [begin, end] = tensor.range;
  if (begin > end) fail(fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (end > data_bytes)
    fail(fmt::format("data_offsets [{}, {}] reach past the {} bytes of data", begin, end, data_bytes));
  const auto bytes = bytes_of(tensor.type, tensor.shape);
  const auto shape = [&] { return shortened(fmt::format("{} {}", to_string(tensor.type), tensor.shape), 200); };
  if (!bytes) fail(fmt::format("the size of {} overflows", shape()));
  if (*bytes != end - begin)
    fail(fmt::format("{} takes {} bytes, but data_offsets [{}, {}] hold {}", shape(), *bytes, begin, end, end - begin));
}

}  // namespace

std::uint64_t header_bytes(std::span<const std::byte> first, std::uint64_t file_bytes, const std::string& file) {
  const auto fail = [&](std::string_view what) { throw FileError(fmt::format("{}: {}", file, what)); };
  std::uint64_t length = 0;
  if (first.size() < sizeof(length) || file_bytes < sizeof(length))
    fail(fmt::format("{} bytes are too few for a safetensors file, which starts with 8 bytes of header length",
                     file_bytes));
  std::memcpy(&length, first.data(), sizeof(length));
  if (length > max_header_bytes)
    fail(fmt::format("a header of {} bytes is over the limit of {} (is this a safetensors file?)", length,
                     max_header_bytes));
  if (length > file_bytes - sizeof(length))
    fail(fmt::format("a header of {} bytes reaches past the end of the file, {} bytes on", length,
                     file_bytes - sizeof(length)));
  return sizeof(length) + length;
}

SafeTensorsLayout parse_layout(std::span<const std::byte> bytes, std::uint64_t file_bytes, const std::string& file) {
  const auto fail = [&](std::string_view what) { throw FileError(fmt::format("{}: {}", file, what)); };
  constexpr std::size_t length_bytes = sizeof(std::uint64_t);
  const auto all = std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view header = all.substr(length_bytes);
  const std::uint64_t data_bytes = file_bytes - bytes.size();
  if (!header.starts_with('{')) fail("the header does not start with '{' (is this a safetensors file?)");
  // The JSON parser treats a zero byte as the end of the text and would ignore the rest.
  if (const auto zero = header.find('\0'); zero != std::string_view::npos)
    fail(fmt::format("the header is not valid JSON, at byte {}: a zero byte", length_bytes + zero));

  JsonHeaderReader reader(file);
  json::sax_parse(header.begin(), header.end(), &reader);

  std::vector<std::tuple<std::uint64_t, std::uint64_t, const std::string*>> order;
  SafeTensorsLayout layout{.tensors = {}, .metadata = std::move(reader.metadata)};
  for (const auto& [name, tensor] : reader.tensors) {
    check_size(file, name, tensor, data_bytes);
    order.emplace_back(tensor.range.begin, tensor.range.end, &name);
  }
  // Stable, so that tensors of equal ranges stay in the order of their names.
  detail::stable_sort(order, [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });

  std::uint64_t covered = 0;
  const std::string* previous = nullptr;
  for (const auto& [begin, end, name] : order) {
    if (begin < covered)
      fail(fmt::format("the data of tensor {}, which starts at {}, overlaps that of tensor {}, which ends at {}",
                       in_quotes(*name), begin, in_quotes(*previous), covered));
    if (begin > covered)
      fail(fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor", covered, begin,
                       in_quotes(*name)));
    auto& tensor = reader.tensors.at(*name);
    layout.tensors.push_back({*name, tensor.type, std::move(tensor.shape), bytes.size() + begin, end - begin});
    covered = end;
    previous = name;
  }
  if (covered != data_bytes)
    fail(fmt::format("bytes {} to {} of the data, after the last tensor, belong to no tensor", covered, data_bytes));
  return layout;
}

SafeTensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& file) {
  SafeTensorsLayout layout = parse_layout(bytes.first(header_bytes(bytes, bytes.size(), file)), bytes.size(), file);
  SafeTensorsContent content{.tensors = {}, .metadata = std::move(layout.metadata)};
  for (TensorPlace& place : layout.tensors)
    content.tensors.push_back(
        {std::move(place.name), place.type, std::move(place.shape), bytes.subspan(place.offset, place.bytes)});
  return content;
}

std::string encode_header(std::span<const TensorView> tensors, const std::map<std::string, std::string>& metadata) {
  std::vector<TensorPlace> places;
  for (const TensorView& tensor : tensors)
    places.push_back({tensor.name, tensor.type, tensor.shape, 0, tensor.bytes.size()});
  return encode_header(places, metadata);
}

std::string encode_header(std::span<const TensorPlace> tensors, const std::map<std::string, std::string>& metadata) {
  const auto fail = [](const TensorPlace& tensor, std::string_view what) {
    throw UsageError(fmt::format("tensor {} cannot be written: {}", in_quotes(tensor.name), what));
  };
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(metadata_key)] = metadata;
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  // ordered_json looks up names by linear search; members are appended directly instead.
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  for (const auto& tensor : tensors) {
    if (tensor.name == metadata_key) fail(tensor, "the name is reserved in a safetensors file");
    if (!names.insert(tensor.name).second) fail(tensor, "another tensor has the same name");
    const auto bytes = bytes_of(tensor.type, tensor.shape);
    if (!bytes || *bytes != tensor.bytes)
      fail(tensor, fmt::format("{} bytes do not match {} {}", tensor.bytes, to_string(tensor.type), tensor.shape));
    members.push_back(
        {tensor.name,
         {{"dtype", to_string(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + *bytes}}}});
    offset += *bytes;
  }

  std::string text;
  try {
    text = header.dump();
  } catch (const json::type_error& error) {
    throw UsageError(fmt::format("a name or the metadata cannot be written: {}", json_reason(error)));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  if (text.size() > max_header_bytes)
    throw UsageError(
        fmt::format("a header of {} bytes is over the format's limit of {}", text.size(), max_header_bytes));
  const std::uint64_t length = text.size();
  std::array<char, sizeof(length)> prefix{};
  std::memcpy(prefix.data(), &length, sizeof(length));
  return std::string(prefix.begin(), prefix.end()) + text;
}

std::map<std::string, std::string> parse_shard_index(std::string_view text, const std::string& file) {
  const auto fail = [&](std::string_view what) { throw FileError(fmt::format("{}: {}", file, what)); };
  const json index = parse_json(text, file);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    fail("the index has no object \"weight_map\"");
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : index.at("weight_map").items()) {
    if (!shard.is_string()) fail(fmt::format("tensor {}: the name of its file is not a string", in_quotes(name)));
    const auto& path = shard.get_ref<const std::string&>();
    if (path.empty() || path == "." || path == ".." ||
        path.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      fail(fmt::format("tensor {}: {} is not the name of a file beside the index", in_quotes(name), in_quotes(path)));
    shards.emplace(name, path);
  }
  return shards;
}

}  // namespace jerboa::io
