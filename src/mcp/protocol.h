#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "mcp/tool.h"

// Shared by both sides of the protocol.
namespace jerboa::mcp {

/// A client asks for the first one.
inline constexpr std::array<std::string_view, 4> protocol_versions = {"2025-06-18", "2025-11-25", "2025-03-26",
                                                                      "2024-11-05"};
inline bool is_known_version(std::string_view version) {
  return std::find(protocol_versions.begin(), protocol_versions.end(), version) != protocol_versions.end();
}

/// The longest message that either side accepts.
inline constexpr std::size_t max_message_bytes = 64 << 20;

/// JSON-RPC's error codes.
inline constexpr int parse_error = -32700, invalid_request = -32600, method_not_found = -32601, invalid_params = -32602,
                     internal_error = -32603;

inline Json make_request(const Json& id, std::string_view method, Json params) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", std::move(params)}};
}
inline Json make_notification(std::string_view method, Json params) {
  return {{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}};
}
inline Json make_result(const Json& id, Json result) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}
inline Json make_error(const Json& id, int code, std::string_view message) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", code}, {"message", message}}}};
}

/// A text member of an object, or "".
inline std::string text_of(const Json& object, std::string_view name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace jerboa::mcp
