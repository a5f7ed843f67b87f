#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/encoder_options.h"

namespace jerboa::cli {
namespace {

struct ClassifyCommand {
  EncoderFlags flags;
  TextFlags texts;
  std::string second, format = "json";

  void run() const {
    flags.check();
    const auto all = texts.read();
    TextEncoder encoder = flags.open();
    const Embeddings scores = second.empty() ? encoder.classify(all) : encoder.classify_pairs(pairs(all));
    for (std::int64_t i = 0; i < scores.count; ++i) {
      if (format == "text") {
        print_best(encoder, scores.row(i), all[static_cast<std::size_t>(i)]);
        continue;
      }
      nlohmann::ordered_json classes;
      for (std::int64_t j = 0; j < scores.dimensions; ++j)
        classes[encoder.classes()[static_cast<std::size_t>(j)]] = scores.row(i)[static_cast<std::size_t>(j)];
      const nlohmann::ordered_json report{{"text", all[static_cast<std::size_t>(i)]}, {"scores", classes}};
      fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  }

  static void print_best(const TextEncoder& encoder, std::span<const float> scores, const std::string& text) {
    const auto best = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
    fmt::print("{:.4f}  {}  {}\n", scores[best], encoder.classes()[best], text);
  }

  std::vector<std::pair<std::string, std::string>> pairs(const std::vector<std::string>& all) const {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (const std::string& text : all) pairs.emplace_back(text, second);
    return pairs;
  }
};

}  // namespace

void add_classify(CLI::App& app) {
  auto command = std::make_shared<ClassifyCommand>();
  auto* sub = app.add_subcommand("classify", "Score texts by the classes of a model with a classification head");
  command->flags.add_to(*sub);
  command->texts.add_to(*sub, "texts");
  sub->add_option("--second", command->second, "The second text of each pair, for models that compare two");
  add_format_to(*sub, command->format);
  add_examples(*sub,
               {"jerboa classify FOLDER \"what a lovely day\"", "jerboa classify FOLDER -f reviews.txt --format text"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
