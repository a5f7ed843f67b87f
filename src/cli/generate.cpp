#include <CLI/CLI.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <iostream>
#include <iterator>
#include <memory>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>

#include "cli/commands.h"
#include "cli/language_options.h"

namespace jerboa::cli {
namespace {

struct GenerateCommand {
  std::string path, prompt;
  LanguageFlags flags;

  void run() const {
    std::string text = prompt;
    if (text == "-") text.assign(std::istreambuf_iterator<char>(std::cin), {});
    LanguageModel model = flags.open(path);
    if (flags.echo) write_text(text);
    const Generation result = model.generate(text, flags.generation(model), write_text);
    write_text("\n");
    if (flags.stats) print_stats(model, result);
    flags.write_trace(model);
  }
};

}  // namespace

void add_generate(CLI::App& app) {
  auto command = std::make_shared<GenerateCommand>();
  auto* sub = app.add_subcommand("generate", "Continue a text with a pretrained model");
  sub->add_option("model", command->path, model_help)->required();
  sub->add_option("prompt", command->prompt, "The text to continue; - reads it from standard input")->required();
  command->flags.add_to(*sub);
  sub->add_flag("--echo", command->flags.echo, "Print the prompt as well");
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
