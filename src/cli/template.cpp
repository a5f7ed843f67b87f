#include <CLI/CLI.hpp>
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
  std::string folder, name, messages = "-", tools, documents, variables;
  bool no_generation_prompt = false;
};

JsonValue read_json(const std::string& path) {
  if (path != "-") return JsonValue::parse(FileContent(path).text(), path);
  return JsonValue::parse(read_input(), "standard input");
}

void render(const RenderArguments& args) {
  const ChatTemplate chat = ChatTemplate::load(model_path(args.folder), args.name);
  ChatTemplateOptions options{.add_generation_prompt = !args.no_generation_prompt};
  if (!args.tools.empty()) options.tools = read_json(args.tools);
  if (!args.documents.empty()) options.documents = read_json(args.documents);
  if (!args.variables.empty()) options.variables = read_json(args.variables);
  write_text(chat.render(read_json(args.messages), options));
}

}  // namespace

void add_template(CLI::App& app) {
  CLI::App* command = app.add_subcommand("template", "Chat templates");
  command->require_subcommand(1);
  CLI::App* sub = command->add_subcommand("render", "Print a conversation as formatted by the template");
  auto args = std::make_shared<RenderArguments>();
  sub->add_option("folder", args->folder, "A model's folder, with chat_template.jinja or tokenizer_config.json")
      ->required();
  sub->add_option("--messages", args->messages, "JSON list of messages; - is standard input")->capture_default_str();
  sub->add_option("--tools", args->tools, "JSON list of tools");
  sub->add_option("--documents", args->documents, "JSON list of documents");
  sub->add_option("--variables", args->variables, "JSON object of further variables");
  sub->add_option("--name", args->name, "Which of several templates, e.g. rag");
  sub->add_flag("--no-generation-prompt", args->no_generation_prompt,
                "Do not append the start of the assistant's turn");
  add_examples(*sub, {"jerboa template render FOLDER --messages messages.json --variables variables.json"});
  sub->callback([args] { render(*args); });
}

}  // namespace jerboa::cli
