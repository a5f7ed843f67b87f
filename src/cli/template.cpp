#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <string>

#include <jerboa/base/file.h>
#include <jerboa/text/chat_template.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct RenderArguments {
  std::string model, name, messages = "-", tools, documents, variables;
  bool no_generation_prompt = false;
};

JsonValue read_json(const std::string& path, const std::string& flag) {
  try {
    if (path != "-") return JsonValue::parse(FileContent(path).text(), path);
    return JsonValue::parse(read_input(), "standard input");
  } catch (const UsageError& error) {
    throw BadArguments(fmt::format("{}: {}", flag, error.what()));
  }
}

void render(const RenderArguments& args) {
  ChatTemplateOptions options{.add_generation_prompt = !args.no_generation_prompt};
  if (!args.tools.empty()) options.tools = read_json(args.tools, "--tools");
  if (!args.documents.empty()) options.documents = read_json(args.documents, "--documents");
  if (!args.variables.empty()) options.variables = read_json(args.variables, "--variables");
  const JsonValue messages = read_json(args.messages, "--messages");
  write_text(ChatTemplate::load(model_path(args.model), args.name).render(messages, options));
}

}  // namespace

void add_template(CLI::App& app) {
  CLI::App* command = app.add_subcommand("template", "Chat templates");
  command->require_subcommand(1);
  add_examples(*command, {"jerboa template render minimind2-small --messages messages.json"});
  CLI::App* sub = command->add_subcommand("render", "Print a conversation as formatted by the template");
  auto args = std::make_shared<RenderArguments>();
  sub->add_option("model", args->model, "A model's name or folder, with chat_template.jinja or tokenizer_config.json")
      ->required();
  sub->add_option("--messages", args->messages, "JSON list of messages; - is standard input")
      ->check(file_or_input())
      ->capture_default_str();
  sub->add_option("--tools", args->tools, "JSON list of tools")->check(file_or_input());
  sub->add_option("--documents", args->documents, "JSON list of documents")->check(file_or_input());
  sub->add_option("--variables", args->variables, "JSON object of further variables")->check(file_or_input());
  sub->add_option("--name", args->name, "Which of several templates, e.g. rag");
  sub->add_flag("--no-generation-prompt", args->no_generation_prompt,
                "Do not append the start of the assistant's turn");
  add_examples(*sub, {"jerboa template render FOLDER --messages messages.json --variables variables.json"});
  sub->callback([args] { render(*args); });
}

}  // namespace jerboa::cli
