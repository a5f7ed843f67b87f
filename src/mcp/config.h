#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "mcp/client.h"

namespace jerboa::mcp {

/// A server of a configuration file: a process, or an address.
struct ServerConfig {
  std::string name;
  ProcessOptions process = {};
  HttpOptions http = {};
  double seconds = 60;  ///< to wait for an answer
};

/// The servers of {"mcpServers": {NAME: {"command", "args", "env", "cwd"} or {"url", "headers"}}}, the format that
/// other programs read as well, but for those that are "disabled". Throws UsageError that names the file, the server
/// and what is wrong.
std::vector<ServerConfig> read_config(const std::filesystem::path& path);

std::shared_ptr<Client> connect(const ServerConfig& config, const std::string& version,
                                const CallContext& context = {});

/// The tools of a server. If it is gone when one is called, it is connected to again, once per call.
std::vector<Tool> connect_tools(const ServerConfig& config, const std::string& version,
                                const CallContext& context = {});

/// The tools of all servers. A name that is taken already, or that models cannot write, is changed.
std::vector<Tool> connect_all(const std::vector<ServerConfig>& servers, const std::string& version,
                              const CallContext& context = {});

/// Adds tools to others, each under a name of its own; `prefix` is put before one that is taken.
void add_tools(std::vector<Tool>& tools, std::vector<Tool> added, const std::string& prefix);

}  // namespace jerboa::mcp
