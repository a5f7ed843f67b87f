#include <CLI/CLI.hpp>
#include <memory>

#include <jerboa/models/llama2c.h>
#include <jerboa/text/tokenizer.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct ImportCommand {
  std::string file, folder, tokenizer;

  void run() const {
    if (!tokenizer.empty()) Tokenizer::load(tokenizer);  // fail before anything is written
    const Waiting waiting("importing " + file);
    models::import_llama2c(file, folder, tokenizer);
  }
};

}  // namespace

void add_import(CLI::App& app) {
  auto command = std::make_shared<ImportCommand>();
  auto* sub = app.add_subcommand("import", "Convert a model in llama2.c's format to a Hugging Face folder");
  sub->add_option("file", command->file, "The model, in the format of llama2.c's first version (stories15M.bin)")
      ->required();
  sub->add_option("folder", command->folder, "The folder to create")->required();
  sub->add_option("--tokenizer", command->tokenizer, "Its tokenizer.bin");
  add_examples(*sub, {"jerboa import stories15M.bin FOLDER --tokenizer tokenizer.bin"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
