#include "c_api/bundle.h"

#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>

#include "base/parse_json.h"

namespace jerboa::c_api {
namespace {

constexpr std::size_t alignment = 8, length_bytes = 8;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

}  // namespace

Bundle read_bundle(std::string_view bytes, const std::string& what) {
  const auto require = [&](bool holds) {
    if (!holds) throw UsageError(fmt::format("{}: not a bundle, or one that is cut off", what));
  };
  require(bytes.size() >= length_bytes);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  require(length <= bytes.size() - length_bytes);
  nlohmann::json header;
  try {
    header = parse_json(bytes.substr(length_bytes, static_cast<std::size_t>(length)), what);
  } catch (const FileError& error) {
    throw UsageError(error.what());
  }
  require(header.is_object() && header.contains("parts") && header["parts"].is_array());
  Bundle bundle;
  std::size_t place = aligned(length_bytes + static_cast<std::size_t>(length));
  for (const auto& part : header["parts"]) {
    const auto size = json_integer(part);
    require(size && *size >= 0 && place <= bytes.size() && static_cast<std::uint64_t>(*size) <= bytes.size() - place);
    bundle.parts.push_back(bytes.substr(place, static_cast<std::size_t>(*size)));
    place = aligned(place + static_cast<std::size_t>(*size));
  }
  bundle.value = std::move(header["value"]);
  return bundle;
}

std::size_t BundleWriter::add(std::span<const std::byte> bytes) {
  parts_.resize(aligned(parts_.size()));
  parts_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  sizes_.push_back(bytes.size());
  return sizes_.size() - 1;
}

std::string BundleWriter::finish(nlohmann::json value) && {
  const std::string header = nlohmann::json{{"parts", sizes_}, {"value", std::move(value)}}.dump();
  const std::uint64_t length = header.size();
  std::string bytes(length_bytes, '\0');
  std::memcpy(bytes.data(), &length, length_bytes);
  bytes += header;
  bytes.resize(aligned(bytes.size()));
  bytes += parts_;
  return bytes;
}

}  // namespace jerboa::c_api
