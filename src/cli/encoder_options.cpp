#include "cli/encoder_options.h"

#include <fmt/format.h>
#include <sstream>

#include <jerboa/base/file.h>

#include "cli/arguments.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {

void EncoderFlags::add_to(CLI::App& command) {
  command.add_option("model", model, model_help)->required();
  loading.add_to(command, "Maximum tokens of a text; by default the limit in the model's folder");
}

void EncoderFlags::check() const {
  loading.check();
  model_path(model);
}

TextEncoder EncoderFlags::open() const {
  const std::optional<DType> weights = weights_type(loading.weights);
  const std::filesystem::path path = model_path_for(model, weights);
  const Waiting waiting("loading " + model);
  return TextEncoder::load(path, {.device = loading.chosen_device(),
                                  .context = loading.context,
                                  .weights = weights,
                                  .precision = precision_of(loading.precision).value_or(Precision::full)});
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

void add_format_to(CLI::App& command, std::string& format) {
  auto* option = command.add_option("--format", format, "Output format: json (one object per line) or text")
                     ->check(one_of({"json", "text"}))
                     ->capture_default_str();
  const std::string help = "The same as --format json";
  command.add_flag("--json", help)->excludes(option);
}

void TextFlags::add_to(CLI::App& command, const std::string& called) {
  name = called;
  command.add_option(name, texts, fmt::format("The {}", name));
  command.add_option("-f,--file", file, fmt::format("More {}, one per line; - reads standard input", name))
      ->check(file_or_input());
}

std::vector<std::string> TextFlags::read() const {
  std::vector<std::string> all = texts;
  if (!file.empty())
    for (std::string& line : read_lines(file)) all.push_back(std::move(line));
  if (all.empty()) throw BadArguments(fmt::format("no {} are given; name some, or a file of lines with --file", name));
  return all;
}

}  // namespace jerboa::cli
