#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include <jerboa/base/error.h>

// The Model Context Protocol: tools that other programs offer to a model, and tools that this one offers to others.
namespace jerboa::mcp {

using Json = nlohmann::ordered_json;

/// A server that does not answer, or answers with an error.
class McpError : public Error {
 public:
  using Error::Error;
};

struct ToolResult {
  std::string text;
  bool is_error = false;
  bool operator==(const ToolResult&) const = default;
};

/// What a call may ask and report while it runs.
struct CallContext {
  std::function<bool()> is_cancelled = [] { return false; };
  /// `total` is 0 if it is not known.
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
