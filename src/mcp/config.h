#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mcp/client.h"

namespace jerboa::mcp {

/// A server in a configuration file: a process, or a URL.
struct ServerConfig {
  std::string name;
  ProcessOptions process = {};
  HttpOptions http = {};
  double seconds = 60;  ///< to wait for an answer
};

/// Reads the servers of {"mcpServers": {NAME: {"command", "args", "env", "cwd"} or {"url", "headers"}}}, the format
/// that other programs share, except "disabled" ones. Throws UsageError that names the file, the server and the
/// problem.
std::vector<ServerConfig> read_config(const std::filesystem::path& path);

std::shared_ptr<Client> connect(const ServerConfig& config, const std::string& version,
                                const CallContext& context = {});

/// The tools of a server. If the server is gone when one is called, the call reconnects once.
std::vector<Tool> connect_tools(const ServerConfig& config, const std::string& version,
                                const CallContext& context = {});

/// The tools of all servers. A name that is taken, or that models cannot write, is changed.
std::vector<Tool> connect_all(const std::vector<ServerConfig>& servers, const std::string& version,
                              const CallContext& context = {});

/// Adds tools to others under unique names: `prefix` is put before a name that is taken.
void add_tools(std::vector<Tool>& tools, std::vector<Tool> added, const std::string& prefix);

}  // namespace jerboa::mcp
