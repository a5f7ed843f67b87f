#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mcp/tool.h"

namespace jerboa::mcp {

/// A message did not reach the server, because it is gone or has forgotten the session. Another connection may help,
/// and nothing happens twice.
class ConnectionLost : public McpError {
 public:
  using McpError::McpError;
};

/// A connection over which JSON-RPC messages go both ways. All calls come from one thread; failures are McpErrors.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void send(const Json& message) = 0;
  /// The next message from the other side, or nothing if none came within so many seconds. Throws once there can be no
  /// more.
  virtual std::optional<Json> receive(double seconds) = 0;
  /// The handshake is complete, and the protocol has this version.
  virtual void begin(const std::string& version) { (void)version; }
};

/// How to run a server as a process.
struct ProcessOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> variables = {};  ///< of its environment, besides a few that every program needs
  std::string folder = {};                            ///< that it runs in; by default this process's
};

/// A process whose standard input and output are the connection, a message per line. It does not receive this
/// terminal's Ctrl-C, and ends with the transport.
std::unique_ptr<Transport> open_process(const ProcessOptions& options);

struct HttpOptions {
  std::string url;
  std::map<std::string, std::string> headers = {};
};

/// Streamable HTTP. Throws UsageError in a build without libcurl.
std::unique_ptr<Transport> open_http(const HttpOptions& options);

}  // namespace jerboa::mcp
