#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "mcp/config.h"

namespace jerboa::cli {
namespace {

// Tests a configuration without a model.
struct ToolsCommand {
  std::string config, tool, arguments = "{}";
  double seconds = 0;
  bool json = false;

  void run() const {
    std::vector<mcp::ServerConfig> servers = read_servers();
    const mcp::Json given = parsed_arguments();
    const CatchInterrupts catching;
    mcp::CallContext context;
    context.is_cancelled = CatchInterrupts::is_set;
    try {
      const std::vector<mcp::Tool> tools = mcp::connect_all(servers, JERBOA_VERSION, context);
      if (tool.empty())
        list(tools);
      else
        call(tools, given, context);
    } catch (const mcp::McpError&) {
      if (CatchInterrupts::is_set()) throw Exit{ExitCode::interrupted};
      throw;
    }
  }

 private:
  std::vector<mcp::ServerConfig> read_servers() const {
    try {
      std::vector<mcp::ServerConfig> servers = mcp::read_config(config);
      for (mcp::ServerConfig& server : servers)
        if (seconds > 0) server.seconds = seconds;
      return servers;
    } catch (const UsageError& error) {
      throw BadArguments(error.what());
    }
  }

  mcp::Json parsed_arguments() const {
    mcp::Json parsed;
    try {
      parsed = parse_ordered_json(arguments, "arguments");
    } catch (const FileError& error) {
      throw BadArguments(error.what());
    }
    if (!parsed.is_object()) throw BadArguments("arguments: must be a JSON object, such as '{\"message\": \"hello\"}'");
    return parsed;
  }

  void list(const std::vector<mcp::Tool>& tools) const {
    for (const mcp::Tool& one : tools) {
      if (json) {
        const mcp::Json line{{"name", one.name}, {"description", one.description}, {"parameters", one.parameters}};
        write_text(line.dump(-1, ' ', false, mcp::Json::error_handler_t::replace) + "\n");
      } else {
        const std::string first_line = one.description.substr(0, one.description.find('\n'));
        write_text(fmt::format("{}  {}\n", bold(one.name, has_colours(1)), shortened(first_line, 200)));
      }
    }
  }

  void call(const std::vector<mcp::Tool>& tools, const mcp::Json& given, const mcp::CallContext& context) const {
    const auto found = std::find_if(tools.begin(), tools.end(), [&](const mcp::Tool& one) { return one.name == tool; });
    if (found == tools.end()) {
      std::vector<std::string> names;
      for (const mcp::Tool& one : tools) names.push_back(one.name);
      const std::string meant = nearest(tool, names);
      throw BadArguments(fmt::format(
          "there is no tool {}{}", tool,
          meant.empty() ? fmt::format("; see jerboa tools {}", config) : fmt::format("; did you mean {}?", meant)));
    }
    const mcp::ToolResult result = found->call(given, context);
    if (result.is_error) throw Error(fmt::format("{}: {}", tool, result.text));
    write_text(result.text + "\n");
  }
};

}  // namespace

void add_tools(CLI::App& app) {
  auto command = std::make_shared<ToolsCommand>();
  auto* sub = app.add_subcommand("tools", "List the tools of MCP servers, or call one");
  sub->add_option("config", command->config, "A file with MCP servers, as for chat --mcp")
      ->required()
      ->check(existing_file());
  sub->add_option("tool", command->tool, "The tool to call; by default all are listed");
  sub->add_option("arguments", command->arguments, "Its arguments, as a JSON object")->capture_default_str();
  sub->add_option("--timeout", command->seconds, "Seconds to wait for an answer; by default as in the file, or 60")
      ->check(number_above(0, 86400));
  sub->add_flag("--json", command->json, "Print each tool as a line of JSON");
  add_examples(*sub, {"jerboa tools mcp.json", "jerboa tools mcp.json echo '{\"message\": \"hello\"}'"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
