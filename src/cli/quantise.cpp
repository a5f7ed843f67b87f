#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <unistd.h>

#include <jerboa/base/file.h>
#include <jerboa/language/calibration.h>
#include <jerboa/models/quantise.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/language_options.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct QuantiseCommand {
  std::string from, to, weights = "int4", text, device = "best";

  void run() const {
    const DType type = weights == "int8" ? DType::i8 : DType::i4;
    if (text.empty()) {
      const Waiting waiting(fmt::format("quantising {} to {}", from, weights));
      return models::quantise_folder(model_path(from), to, type);
    }
    const bool person = is_terminal(STDERR_FILENO);
    CalibrationOptions options{.device = Device::by_name(device)};
    const std::string read = text == "self" ? written_text() : std::string(FileContent(text).text());
    if (text == "self") options.tokens = 12288;  // more than of a given text, because it has no topic
    if (person)
      options.on_progress = [](std::size_t number, std::size_t count) {
        fmt::print(stderr, "\rmatrix {} of {}", number, count);
      };
    quantise_calibrated(model_path(from), to, type, read, options);
    if (person) fmt::print(stderr, "\r\033[K");
  }

 private:
  std::string written_text() const {
    const Waiting waiting(fmt::format("{} writes a text", from));
    return write_calibration_text(model_path(from), {.device = Device::by_name(device)});
  }
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
  sub->add_option("--calibrate", command->text,
                  "A file with a text for the model to read, or self for one that it generates: weights are rounded so "
                  "that their products on that text change little")
      ->check([](std::string value) { return value == "self" ? "" : existing_file()(value); });
  sub->add_option("--device", command->device, "The device that reads (and writes) the text")
      ->check(device_name())
      ->capture_default_str();
  add_examples(*sub, {"jerboa quantise FOLDER FOLDER-int4 --weights int4",
                      "jerboa quantise FOLDER FOLDER-int4 --weights int4 --calibrate self",
                      "jerboa quantise FOLDER FOLDER-int4 --weights int4 --calibrate text.txt"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
