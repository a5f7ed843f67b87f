#include <CLI/CLI.hpp>
#include <memory>

#include <jerboa/models/save_folder.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct ConvertCommand {
  std::string model, folder, weights;

  void run() const {
    const Waiting waiting("converting " + model);
    const auto path = model_path(model);
    const models::ModelFolder original = models::open_model_folder(path);
    models::check_folder(original, path);
    models::save_folder(folder, original, weights.empty() ? std::nullopt : dtype_from_name(weights));
  }
};

}  // namespace

void add_convert(CLI::App& app) {
  auto command = std::make_shared<ConvertCommand>();
  auto* sub = app.add_subcommand("convert", "Write a model as a Hugging Face folder");
  sub->add_option("model", command->model, model_help)->required();
  sub->add_option("folder", command->folder, "The folder to create")->required();
  sub->add_option("--weights", command->weights,
                  "Type of the weights: f32, f16 or bf16; by default as in the file, with quantised ones in f32")
      ->check(one_of({"f32", "f16", "bf16"}));
  add_examples(*sub, {"jerboa convert model.gguf FOLDER --weights f16"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
