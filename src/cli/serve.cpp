#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <jerboa/base/error.h>

#include "cli/agent.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/store.h"
#include "cli/terminal.h"
#include "mcp/config.h"
#include "server/access.h"
#include "server/server.h"

namespace jerboa::cli {
namespace {

// Parses NAME=PATH, or a path whose last part becomes the name.
server::ServedModel served_model(const std::string& argument, std::optional<DType> weights) {
  const std::size_t equals = argument.find('=');
  const bool is_named = equals != std::string::npos && !std::filesystem::exists(argument);
  std::filesystem::path path = is_named ? argument.substr(equals + 1) : argument;
  const std::string called = path.string();
  const bool is_stored = !std::filesystem::exists(path);
  path = model_path_for(called, weights);
  if (is_named) return {argument.substr(0, equals), path};
  if (is_stored) return {called, path};
  path = std::filesystem::canonical(path);
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), path};
}

// A client serves one call at a time, so calls of its tools wait for each other.
std::vector<server::ServerTool> server_tools(const std::vector<mcp::ServerConfig>& servers) {
  std::vector<mcp::Tool> all;
  for (const mcp::ServerConfig& server : servers) {
    std::vector<mcp::Tool> tools = mcp::connect_tools(server, JERBOA_VERSION);
    const auto mutex = std::make_shared<std::timed_mutex>();
    for (mcp::Tool& tool : tools)
      tool.call = [mutex, call = tool.call](const mcp::Json& arguments, const mcp::CallContext& context) {
        std::unique_lock lock(*mutex, std::defer_lock);
        while (!lock.try_lock_for(std::chrono::milliseconds(20)))
          if (context.is_cancelled()) break;
        // The caller may have left while this call waited.
        if (context.is_cancelled()) throw mcp::McpError("cancelled");
        return call(arguments, context);
      };
    mcp::add_tools(all, std::move(tools), server.name);
  }
  std::vector<server::ServerTool> out;
  for (const mcp::Tool& tool : all) out.push_back(callable(tool));
  return out;
}

struct ServeCommand {
  std::vector<std::string> models;
  DecoderFlags flags;
  DraftFlags drafting;
  server::ServerOptions options;
  double body_mib = 8, memory_gib = 0;
  int sequences = 0;
  std::int64_t cache_tokens = 0;
  bool deterministic = false, lazy = false, quiet = false;
  std::optional<std::string> api_key;
  std::string mcp_file;

  void run() {
    flags.check();
    drafting.check_drafts();
    if (deterministic && drafting.max_drafts() > 0)
      throw BadArguments("--deterministic cannot be combined with --drafts or --draft-model");
    const std::vector<mcp::ServerConfig> mcp_servers = read_servers();
    options.api_key = chosen_key();
    options.http.body_bytes = static_cast<std::size_t>(body_mib * (1 << 20));
    options.memory = static_cast<std::int64_t>(memory_gib * (1 << 30));
    options.http.handles_signals = true;
    options.is_quiet = quiet;
    options.model = flags.options();
    options.model.sequences = sequences;
    options.model.cache_tokens = cache_tokens;
    options.model.deterministic = deterministic;
    std::vector<server::ServedModel> served = served_models();
    options.tools.tools = server_tools(mcp_servers);
    server::Server server(std::move(served), options);
    if (!lazy) {
      std::optional<Waiting> waiting;
      if (quiet) waiting.emplace("loading " + models.front());  // otherwise the log reports it
      server.load_first();
    }
    server.run([&] { announce(server.port()); });
  }

 private:
  std::vector<server::ServedModel> served_models() const {
    std::vector<server::ServedModel> served;
    for (const std::string& model : models) {
      served.push_back(served_model(model, flags.options().weights));
      served.back().drafts = drafting.max_drafts();
    }
    served.front().draft_model = drafting.draft_path();
    return served;
  }

  void announce(int port) const {
    const bool is_v6 = options.http.host.find(':') != std::string::npos;
    const std::string host = is_v6 ? "[" + options.http.host + "]" : options.http.host;
    if (options.api_key.empty() && !server::is_loopback(options.http.host))
      note(fmt::format("warning: anyone who can reach {} can use this server; --api-key asks for a key", host));
    fmt::print("listening on http://{}:{}\n", host, port);
    std::fflush(stdout);
  }

  std::vector<mcp::ServerConfig> read_servers() const {
    if (mcp_file.empty()) return {};
    try {
      return mcp::read_config(mcp_file);
    } catch (const UsageError& error) {
      throw BadArguments(fmt::format("--mcp: {}", error.what()));
    }
  }

  // An empty key comes from an unset variable, and would leave the server open.
  std::string chosen_key() const {
    const char* variable = std::getenv("JERBOA_API_KEY");
    if (!api_key && variable == nullptr) return {};
    std::string key = api_key ? *api_key : variable;
    if (key.empty())
      throw BadArguments(fmt::format("{} is empty; leave it out to serve without a key",
                                     api_key ? "--api-key" : "the environment variable JERBOA_API_KEY"));
    return key;
  }
};

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  server::ServerOptions& options = command->options;
  auto* sub = app.add_subcommand("serve", "Serve models over HTTP, with OpenAI's API and a chat page");
  sub->add_option("models", command->models,
                  "Names of pulled models, folders or .gguf files; NAME=PATH serves one under another name")
      ->required();
  sub->add_option("--host", options.http.host, "Address to listen on; by default only this machine can connect")
      ->capture_default_str();
  sub->add_option("--port", options.http.port, "Port to listen on; 0 takes any that is free")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  sub->add_option("--api-key", command->api_key, "Key that clients must send; by default $JERBOA_API_KEY, or none");
  one_value_each(sub->add_option("--cors", options.cors,
                                 "Origin of other web pages that may use the server, as https://example.org"));
  sub->add_option("--max-tokens", options.limits.max_tokens,
                  "Maximum tokens of an answer; by default the model's context")
      ->check(whole_number(1, 1 << 24));
  sub->add_option("--max-body", command->body_mib, "Maximum size of a request in MiB")
      ->check(number_from(0.001, 1024))
      ->capture_default_str();
  sub->add_option("--max-connections", options.http.connections, "Maximum number of connections")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  sub->add_option("--queue", options.queue, "Maximum unfinished requests of a model")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  sub->add_option("--timeout", options.limits.seconds, "Maximum seconds for an answer, including waiting")
      ->check(number_from(0.001, 1e6))
      ->capture_default_str();
  sub->add_option("--io-timeout", options.http.read_seconds, "Maximum seconds for a request to arrive")
      ->check(number_from(0.01, 1e6))
      ->capture_default_str();
  sub->add_option("--drain", options.http.drain_seconds, "Seconds for unfinished answers after SIGTERM or Ctrl-C")
      ->check(number_from(0, 1e6))
      ->capture_default_str();
  sub->add_option("--memory", command->memory_gib,
                  "GiB for the weights and caches of all models together; those used least recently make room")
      ->check(number_from(0, 1e6));
  sub->add_option("--idle", options.idle_seconds, "Unload a model after this many idle seconds")
      ->check(number_from(0.001, 1e9));
  sub->add_option("--sequences", command->sequences, "Maximum number of texts that are generated at once")
      ->check(whole_number(1, 1 << 16));
  sub->add_option("--cache-tokens", command->cache_tokens, "Tokens of all texts together that the cache holds")
      ->check(whole_number(1, std::int64_t{1} << 40));
  auto* mcp =
      sub->add_option("--mcp", command->mcp_file,
                      "A file with MCP servers, whose tools the page's chats and requests with server_tools may use")
          ->check(existing_file());
  sub->add_option("--max-calls", options.tools.rounds,
                  "How often a model may call tools of --mcp before it must answer")
      ->check(whole_number(1, 1000))
      ->capture_default_str()
      ->needs(mcp);
  sub->add_flag("--deterministic", command->deterministic,
                "A text is the same to the bit whatever else is computed; slower");
  sub->add_flag("--lazy", command->lazy, "Load even the first model only on its first request");
  sub->add_flag("--quiet", command->quiet, "Log neither requests nor loaded models");
  command->flags.add_to(*sub, "Maximum tokens of prompt and answer; by default the model's limit, at most 4096");
  command->drafting.add_drafts_to(*sub, " for the first of the models");
  add_examples(*sub,
               {"jerboa serve minimind2-small", "jerboa serve chat=minimind2-small minilm --port 8000 --weights int8",
                "jerboa serve FOLDER --host 0.0.0.0 --api-key SECRET"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
