#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace jerboa {

/// The maximum nesting depth of objects and arrays.
inline constexpr int max_json_depth = 256;

/// Parses the JSON of a file under the rules that all readers share. Throws FileError, with a message that begins with
/// `origin`, for text that is not valid JSON as a whole, nesting beyond max_json_depth, a key that occurs twice in an
/// object, and a number too large for f64. An integer beyond 64 bits becomes f64, and is therefore refused where an
/// integer is expected.
nlohmann::json parse_json(std::string_view text, std::string_view origin);
/// The same, with the keys of every object in file order.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view origin);

/// The text with Infinity and -Infinity, which Python writes although JSON lacks them, replaced by objects
/// {"__float__": "Infinity"}, the form that later versions of transformers write.
std::string with_json_infinities(std::string_view text);

/// The value as a 64-bit integer, if it is one.
std::optional<std::int64_t> json_integer(const nlohmann::json& value);

/// A name from a file, quoted for an error message: always one printable line of bounded length.
std::string in_quotes(std::string_view name);
/// An untrusted text as one line without control characters, which a terminal would interpret.
std::string printable_line(std::string_view text);
/// At most `limit` bytes of UTF-8, truncated between characters, with an ellipsis if anything was removed.
std::string shortened(std::string_view text, std::size_t limit);
/// The message of an nlohmann exception without its prefixes.
std::string json_reason(const std::exception& error);

}  // namespace jerboa
