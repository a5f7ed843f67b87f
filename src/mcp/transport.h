#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mcp/tool.h"

namespace jerboa::mcp {

/// A message did not reach the server, because it is gone or has forgotten the session. It is safe to reconnect and
/// repeat the message.
class ConnectionLost : public McpError {
 public:
  using McpError::McpError;
};

/// A connection over which JSON-RPC messages go both ways. All calls come from one thread; failures are McpErrors.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void send(const Json& message) = 0;
  /// The next message from the other side, or nothing if none arrives within this many seconds. Throws if no more can
  /// come.
  virtual std::optional<Json> receive(double seconds) = 0;
  /// Called after the handshake, with the negotiated version of the protocol.
  virtual void begin(const std::string& version) { (void)version; }
};

/// How to start a server as a process.
struct ProcessOptions {
  std::vector<std::string> command;
  std::map<std::string, std::string> variables = {};  ///< of the environment, besides a few that every program needs
  std::string folder = {};                            ///< working folder; by default that of this process
};

/// A process whose standard input and output are the connection, one message per line. Ctrl-C in this terminal does not
/// reach it; it ends with the transport.
std::unique_ptr<Transport> open_process(const ProcessOptions& options);

struct HttpOptions {
  std::string url;
  std::map<std::string, std::string> headers = {};
};

/// Streamable HTTP. Throws UsageError in a build without libcurl.
std::unique_ptr<Transport> open_http(const HttpOptions& options);

}  // namespace jerboa::mcp
