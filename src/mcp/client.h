#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mcp/tool.h"
#include "mcp/transport.h"

namespace jerboa::mcp {

struct ClientOptions {
  std::string name;           ///< what the user calls the server, for messages
  double seconds = 60;        ///< to wait for an answer; progress restarts them
  std::string version = "0";  ///< this program's version
};

/// The client side of a connection to a server. Errors are McpErrors that name the server.
class Client {
 public:
  /// Performs the handshake.
  Client(std::unique_ptr<Transport> transport, ClientOptions options, const CallContext& context = {});

  /// The server's tools, each with "name", "description" and "inputSchema".
  std::vector<Json> list_tools(const CallContext& context = {});
  /// Calls a tool. An error that the tool reports is returned as a result; a protocol error is thrown. A call that is
  /// cancelled, or takes too long, is cancelled on the server as well.
  ToolResult call_tool(const std::string& name, const Json& arguments, const CallContext& context = {});

  const std::string& name() const { return options_.name; }

 private:
  Json request(const std::string& method, Json params, const CallContext& context);
  Json wait_for(std::int64_t id, const std::string& method, const CallContext& context);
  void answer(const Json& message);
  void cancel(std::int64_t id, const std::string& reason);
  [[noreturn]] void fail(const std::string& problem) const;

  std::unique_ptr<Transport> transport_;
  ClientOptions options_;
  std::int64_t last_id_ = 0;
};

/// The tools of a server; each keeps the client alive.
std::vector<Tool> tools_of(const std::shared_ptr<Client>& client, const CallContext& context = {});

/// The parts of a result as one text: text parts as they are, and descriptions of images, sounds and links.
std::string content_text(const Json& content);

}  // namespace jerboa::mcp
