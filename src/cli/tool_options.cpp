#include "cli/tool_options.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/memory_options.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

constexpr std::size_t shown_bytes = 200;
constexpr std::int64_t max_passages = 20;

std::string in_one_line(std::string_view text) { return shortened(printable_line(text), shown_bytes); }

// A memory with the model that encodes queries, once it is loaded.
struct SearchedMemory {
  MemoryFlags flags;
  memory::DocumentMemory memory;
  std::unique_ptr<memory::Encoder> encoder = {};

  mcp::ToolResult search(const mcp::Json& arguments) {
    const mcp::Json query = arguments.value("query", mcp::Json()), count = arguments.value("count", mcp::Json(5));
    if (!query.is_string() || query.get<std::string>().empty()) return {"\"query\" must be a string", true};
    if (!count.is_number_integer() || count.get<std::int64_t>() < 1 || count.get<std::int64_t>() > max_passages)
      return {fmt::format("\"count\" must be a whole number from 1 to {}", max_passages), true};
    if (!encoder) encoder = flags.open_encoder(memory);
    std::string text;
    for (const memory::Passage& passage : memory.search(query, count, *encoder))
      text +=
          fmt::format("{}[{}, {:.2f}]\n{}", text.empty() ? "" : "\n\n", passage.document, passage.score, passage.text);
    return {text.empty() ? "nothing was found" : text};
  }
};

}  // namespace

mcp::Tool memory_tool(const std::string& path) {
  MemoryFlags flags;
  if (path != "default") flags.path = path;
  auto searched =
      std::make_shared<SearchedMemory>(SearchedMemory{flags, flags.open(memory::DocumentMemory::Access::existing)});
  return {"search_memory", "Searches the user's documents, and returns the passages that are most like a text.",
          mcp::Json::parse(R"({"type": "object", "properties": {
            "query": {"type": "string", "description": "What to look for, in a few words or a sentence"},
            "count": {"type": "integer", "minimum": 1, "maximum": 20, "description": "How many passages; by default 5"}
          }, "required": ["query"], "additionalProperties": false})"),
          [searched](const mcp::Json& arguments, const mcp::CallContext&) { return searched->search(arguments); }};
}

void ToolFlags::add_to(CLI::App& command) {
  command
      .add_option("--mcp", config,
                  "A file with MCP servers whose tools the model may call: {\"mcpServers\": {NAME: {\"command\": …}}}")
      ->check(existing_file());
  command.add_option("--memory", memory,
                     "A memory that the model may search: a file, or default for the one of jerboa memory");
  command
      .add_option("--tool-choice", choice,
                  "auto lets the model decide; required, or the name of a tool, makes it begin with a call")
      ->capture_default_str();
  command.add_option("--max-calls", rounds, "How often the model may call tools before it must answer")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
}

void ToolFlags::check() {
  if (!has_tools() && choice != "auto") throw BadArguments("--tool-choice needs tools; give --mcp or --memory");
  if (config.empty()) return;
  try {
    servers_ = mcp::read_config(config);
  } catch (const UsageError& error) {
    throw BadArguments(fmt::format("--mcp: {}", error.what()));
  }
}

std::string ToolFlags::typed() const {
  if (config.empty()) return "--memory";
  return memory.empty() ? "--mcp" : "--mcp and --memory";
}

std::vector<server::ServerTool> ToolFlags::open() const {
  const CatchInterrupts catching;
  std::vector<mcp::Tool> tools;
  mcp::CallContext context;
  context.is_cancelled = CatchInterrupts::is_set;
  for (const mcp::ServerConfig& server : servers_) {
    const Waiting waiting("connecting to " + server.name);
    try {
      mcp::add_tools(tools, mcp::connect_tools(server, JERBOA_VERSION, context), server.name);
    } catch (const mcp::McpError&) {
      if (CatchInterrupts::is_set()) throw Exit{ExitCode::interrupted};
      throw;
    }
  }
  if (!memory.empty()) mcp::add_tools(tools, {memory_tool(memory)}, "jerboa");
  std::vector<server::ServerTool> out;
  for (const mcp::Tool& tool : tools) out.push_back(callable(tool));
  return out;
}

void ToolFlags::check_choice(const std::vector<server::ServerTool>& tools) const {
  const std::string wanted = required_tool();
  if (wanted.empty()) return;
  std::vector<std::string> names;
  for (const server::ServerTool& tool : tools) names.push_back(tool.name);
  if (std::find(names.begin(), names.end(), wanted) != names.end()) return;
  const std::string meant = nearest(wanted, names);
  throw BadArguments(fmt::format("--tool-choice: there is no tool {}{}", wanted,
                                 meant.empty() ? "; see jerboa tools" : fmt::format("; did you mean {}?", meant)));
}

std::string shown_call(const WrittenCall& call) {
  return fmt::format("→ {} {}", printable_line(call.name), in_one_line(call.arguments.empty() ? "{}" : call.arguments));
}

std::string shown_result(const server::ToolOutput& output) {
  return fmt::format("← {}{}", output.is_error ? "error: " : "", in_one_line(output.text));
}

}  // namespace jerboa::cli
