#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <jerboa/text/chat_template.h>

#include "cli/commands.h"

namespace jerboa::cli {
namespace {

struct RenderArguments {
  std::string folder, name, messages = "-", tools, documents, variables;
  bool no_generation_prompt = false;
};

JsonValue read_json(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    file.open(path, std::ios::binary);
    if (!file) throw FileError(path + ": cannot read");
  }
  std::istream& in = path == "-" ? std::cin : file;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return JsonValue::parse(text, path == "-" ? "standard input" : path);
}

void render(const RenderArguments& args) {
  const ChatTemplate chat = ChatTemplate::load(args.folder, args.name);
  ChatTemplateOptions options{.add_generation_prompt = !args.no_generation_prompt};
  if (!args.tools.empty()) options.tools = read_json(args.tools);
  if (!args.documents.empty()) options.documents = read_json(args.documents);
  if (!args.variables.empty()) options.variables = read_json(args.variables);
  std::cout << chat.render(read_json(args.messages), options) << std::flush;
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
  sub->callback([args] { render(*args); });
}

}  // namespace jerboa::cli
