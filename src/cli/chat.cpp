#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <iostream>
#include <memory>
#include <unistd.h>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>

#include "cli/commands.h"
#include "cli/language_options.h"

namespace jerboa::cli {
namespace {

struct ChatCommand {
  std::string path, system;
  std::vector<std::string> messages;
  LanguageFlags flags;

  void run() const {
    LanguageModel model = flags.open(path);
    if (!model.has_chat_template())
      throw UsageError(path + " has no chat template, so it does not support chat; use jerboa generate");
    if (!system.empty()) model.conversation().push_back({"system", system});
    for (const std::string& message : messages) answer(model, message);
    if (messages.empty()) talk(model);
    flags.write_trace(model);
  }

 private:
  void talk(LanguageModel& model) const {
    const bool person = isatty(STDIN_FILENO) != 0;
    if (person) fmt::print("An empty line ends the conversation.\n");
    std::string line;
    while (ask(person, line)) answer(model, line);
  }

  static bool ask(bool person, std::string& line) {
    if (person) write_text("> ");
    return std::getline(std::cin, line) && !line.empty();
  }

  void answer(LanguageModel& model, const std::string& message) const {
    const Generation result = model.chat(message, flags.generation(model), write_text);
    write_text("\n");
    if (flags.stats) print_stats(model, result);
  }
};

}  // namespace

void add_chat(CLI::App& app) {
  auto command = std::make_shared<ChatCommand>();
  auto* sub = app.add_subcommand("chat", "Talk with a pretrained model, line by line");
  sub->add_option("model", command->path, model_help)->required();
  sub->add_option("message", command->messages,
                  "Messages to answer, one after another; by default the lines of standard input");
  sub->add_option("--system", command->system, "The system prompt");
  command->flags.add_to(*sub);
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
