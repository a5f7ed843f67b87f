#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa::c_api {

/// Named bytes with a JSON description: 8 bytes with the length of a JSON text, the text, and the parts one after
/// another. The text is {"parts": [sizes], "value": anything}; each part begins at a multiple of 8 bytes.
struct Bundle {
  nlohmann::json value;
  std::vector<std::string_view> parts;
};

/// The parts are views into `bytes`. Throws UsageError that starts with `what`.
Bundle read_bundle(std::string_view bytes, const std::string& what);

class BundleWriter {
 public:
  /// Returns the part's number.
  std::size_t add(std::span<const std::byte> bytes);
  std::string finish(nlohmann::json value) &&;

 private:
  std::vector<std::size_t> sizes_;
  std::string parts_;
};

}  // namespace jerboa::c_api
