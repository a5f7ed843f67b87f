#include <CLI/CLI.hpp>
#include <memory>

#include <jerboa/models/quantise.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/store.h"

namespace jerboa::cli {
namespace {

struct QuantiseCommand {
  std::string from, to, weights = "int4";

  void run() const { models::quantise_folder(model_path(from), to, weights == "int8" ? DType::i8 : DType::i4); }
};

}  // namespace

void add_quantise(CLI::App& app) {
  auto command = std::make_shared<QuantiseCommand>();
  auto* sub = app.add_subcommand("quantise", "Write a copy of a model's folder with int8 or int4 weights");
  sub->add_option("model", command->from, model_help)->required();
  sub->add_option("output", command->to, "The folder to create")->required();
  sub->add_option("--weights", command->weights, "int8 or int4")
      ->check(one_of({"int8", "int4"}))
      ->capture_default_str();
  add_examples(*sub, {"jerboa quantise FOLDER FOLDER-int4 --weights int4"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
