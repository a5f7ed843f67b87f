#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include <jerboa/base/error.h>

// The Model Context Protocol: gives a model the tools of other programs, and offers this program's tools to others.
namespace jerboa::mcp {

using Json = nlohmann::ordered_json;

/// A server does not answer, or answers with an error.
class McpError : public Error {
 public:
  using Error::Error;
};

struct ToolResult {
  std::string text;
  bool is_error = false;
  bool operator==(const ToolResult&) const = default;
};

/// Callbacks of a running call: cancellation and progress.
struct CallContext {
  std::function<bool()> is_cancelled = [] { return false; };
  /// `total` is 0 if it is unknown.
  std::function<void(double done, double total)> on_progress = [](double, double) {};
};

/// A function that a model may call.
struct Tool {
  std::string name;
  std::string description;
  Json parameters = {};  ///< a JSON schema of an object
  /// Throws Error if the call fails.
  std::function<ToolResult(const Json& arguments, const CallContext& context)> call = {};
};

}  // namespace jerboa::mcp
