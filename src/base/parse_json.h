#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace jerboa {

/// How deep objects and arrays of a file may be nested.
inline constexpr int max_json_depth = 256;

/// The JSON of a file, by one rule for every reader. Refused with a FileError that begins with `origin`: text that is
/// not JSON from its first byte to its last, nesting beyond max_json_depth, a key that occurs twice in an object, and a
/// number too large for f64. A whole number beyond 64 bits is kept as f64, and so is refused where an integer is asked
/// for.
nlohmann::json parse_json(std::string_view text, std::string_view origin);
/// The same, with every object in the order of the file.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view origin);

/// The value as a 64-bit integer, or nothing where it is not one.
std::optional<std::int64_t> json_integer(const nlohmann::json& value);

/// A name from a file as an error shows it, in quotes: one printable line of bounded length, whatever the file says.
std::string in_quotes(std::string_view name);
/// At most `limit` bytes of UTF-8, cut between characters, with an ellipsis where something was cut.
std::string shortened(std::string_view text, std::size_t limit);
/// What an exception of nlohmann's says, without its prefixes.
std::string json_reason(const std::exception& error);

}  // namespace jerboa
