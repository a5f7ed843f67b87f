#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <memory>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/store.h"
#include "server/server.h"

namespace jerboa::cli {
namespace {

// NAME=PATH, or a path whose last part is the name.
server::ServedModel served_model(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  const bool is_named = equals != std::string::npos && !std::filesystem::exists(argument);
  std::filesystem::path path = is_named ? argument.substr(equals + 1) : argument;
  const std::string called = path.string();
  const bool is_stored = !std::filesystem::exists(path);
  path = model_path(called);
  if (is_named) return {argument.substr(0, equals), path};
  if (is_stored) return {called, path};
  path = std::filesystem::canonical(path);
  return {path.extension() == ".gguf" ? path.stem().string() : path.filename().string(), path};
}

struct ServeCommand {
  std::vector<std::string> models;
  ModelFlags flags;
  server::ServerOptions options;
  double body_mib = 8, memory_gib = 0;
  int sequences = 0;
  std::int64_t cache_tokens = 0;
  bool deterministic = false, lazy = false;

  void run() {
    flags.check();
    if (const char* key = std::getenv("JERBOA_API_KEY"); options.api_key.empty() && key != nullptr)
      options.api_key = key;
    options.http.body_bytes = static_cast<std::size_t>(body_mib * (1 << 20));
    options.memory = static_cast<std::int64_t>(memory_gib * (1 << 30));
    options.http.handles_signals = true;
    options.model = flags.options();
    options.model.sequences = sequences;
    options.model.cache_tokens = cache_tokens;
    options.model.deterministic = deterministic;
    std::vector<server::ServedModel> served;
    for (const std::string& model : models) served.push_back(served_model(model));
    server::Server server(std::move(served), options);
    if (!lazy) server.load_first();
    const bool is_v6 = options.http.host.find(':') != std::string::npos;
    const std::string host = is_v6 ? "[" + options.http.host + "]" : options.http.host;
    fmt::print("listening on http://{}:{}\n", host, server.port());
    std::fflush(stdout);
    server.run();
  }
};

}  // namespace

void add_serve(CLI::App& app) {
  auto command = std::make_shared<ServeCommand>();
  server::ServerOptions& options = command->options;
  auto* sub = app.add_subcommand("serve", "Serve models over HTTP, with OpenAI's API and a chat page");
  sub->add_option("models", command->models,
                  "Names of models that were pulled, folders or .gguf files; NAME=PATH gives one another name")
      ->required();
  sub->add_option("--host", options.http.host, "Address to listen on; by default only this machine can connect")
      ->capture_default_str();
  sub->add_option("--port", options.http.port, "Port to listen on; 0 takes any that is free")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  sub->add_option("--api-key", options.api_key, "Key that clients must send; by default $JERBOA_API_KEY, or none");
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
  sub->add_option("--timeout", options.limits.seconds, "Maximum seconds for an answer, waiting included")
      ->check(number_from(0.001, 1e6))
      ->capture_default_str();
  sub->add_option("--io-timeout", options.http.read_seconds, "Seconds within which a request must have arrived")
      ->check(number_from(0.01, 1e6))
      ->capture_default_str();
  sub->add_option("--drain", options.http.drain_seconds, "Seconds for unfinished answers after SIGTERM or Ctrl-C")
      ->check(number_from(0, 1e6))
      ->capture_default_str();
  sub->add_option("--memory", command->memory_gib,
                  "GiB for the weights and caches of all models together; those used least recently make room")
      ->check(number_from(0, 1e6));
  sub->add_option("--sequences", command->sequences, "Maximum texts that are computed at once")
      ->check(whole_number(1, 1 << 16));
  sub->add_option("--cache-tokens", command->cache_tokens, "Tokens of all texts together that the cache holds")
      ->check(whole_number(1, std::int64_t{1} << 40));
  sub->add_flag("--deterministic", command->deterministic,
                "A text is the same to the bit whatever else is computed; slower");
  sub->add_flag("--lazy", command->lazy, "Load even the first model only when it is asked for");
  command->flags.add_to(*sub, "Maximum tokens of prompt and answer; by default the model's limit, at most 4096");
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
