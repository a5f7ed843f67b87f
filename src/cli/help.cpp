#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

void print_help_of(CLI::App& app, const std::vector<std::string>& path) {
  CLI::App* command = &app;
  for (const std::string& word : path) {
    std::vector<std::string> names;
    CLI::App* found = nullptr;
    for (CLI::App* sub : command->get_subcommands([](CLI::App*) { return true; })) {
      names.push_back(sub->get_name());
      if (sub->get_name() == word) found = sub;
    }
    if (found == nullptr) {
      const std::string meant = nearest(word, names);
      throw BadArguments(
          fmt::format("there is no command {}{}", word,
                      meant.empty() ? std::string("; see jerboa help") : fmt::format("; did you mean {}?", meant)));
    }
    command = found;
  }
  write_text(command->help(path.empty() ? "" : fmt::format("{}", full_name(*command->get_parent()))));
}

}  // namespace

void add_help(CLI::App& app) {
  auto path = std::make_shared<std::vector<std::string>>();
  auto* sub = app.add_subcommand("help", "Describe a command");
  sub->add_option("command", *path, "The command, e.g. generate, or tokenizer train; by default all of them");
  add_examples(*sub, {"jerboa help", "jerboa help tokenizer train"});
  sub->callback([&app, path] { print_help_of(app, *path); });
}

}  // namespace jerboa::cli
