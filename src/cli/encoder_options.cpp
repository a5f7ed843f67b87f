#include "cli/encoder_options.h"

#include <sstream>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {

void EncoderFlags::add_to(CLI::App& command) {
  command.add_option("model", model, model_help)->required();
  loading.add_to(command, "Maximum tokens of a text; by default as the model's folder says");
}

TextEncoder EncoderFlags::open() const {
  loading.check();
  return TextEncoder::load(
      model_path(model),
      {.device = loading.chosen_device(), .context = loading.context, .weights = weights_type(loading.weights)});
}

std::vector<std::string> read_lines(const std::string& path) {
  std::string text;
  if (path == "-")
    text = read_input();
  else
    text = FileContent(path).text();
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> all_texts(const std::vector<std::string>& given, const std::string& file) {
  std::vector<std::string> texts = given;
  if (!file.empty())
    for (std::string& line : read_lines(file)) texts.push_back(std::move(line));
  if (texts.empty()) throw UsageError("no texts are given; name some, or a file of lines with --file");
  return texts;
}

}  // namespace jerboa::cli
