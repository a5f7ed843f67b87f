#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/agent.h"
#include "cli/chat_asker.h"
#include "mcp/config.h"

namespace jerboa::cli {

/// Flags for the tools that a model may call: those of MCP servers, and the memory.
struct ToolFlags {
  std::string config, memory, choice = "auto";
  int rounds = 8;

  void add_to(CLI::App& command);
  /// Reads the configuration; throws BadArguments.
  void check();
  bool has_tools() const { return !config.empty() || !memory.empty(); }
  /// The flags that were given, for messages.
  std::string typed() const;
  /// Starts the servers, which live as long as their tools. Ctrl-C ends the program.
  std::vector<server::ServerTool> open() const;
  /// Throws BadArguments if --tool-choice names an unknown tool.
  void check_choice(const std::vector<server::ServerTool>& tools) const;

  AgentOptions agent() const { return {.rounds = rounds, .requires_call = choice != "auto"}; }
  /// The tool that a required call must be of, or "".
  std::string required_tool() const { return choice == "auto" || choice == "required" ? "" : choice; }

 private:
  std::vector<mcp::ServerConfig> servers_;
};

/// A tool that searches a memory; the first call loads its model. Throws if there is no such memory.
mcp::Tool memory_tool(const std::string& path);

/// A call in one line.
std::string shown_call(const WrittenCall& call);
/// A result in one line.
std::string shown_result(const server::ToolOutput& output);

}  // namespace jerboa::cli
