#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/encoder_options.h"

namespace jerboa::cli {
namespace {

struct ClassifyCommand {
  EncoderFlags flags;
  std::vector<std::string> texts;
  std::string file, second;

  void run() const {
    TextEncoder encoder = flags.open();
    const auto all = all_texts(texts, file);
    const Embeddings scores = second.empty() ? encoder.classify(all) : encoder.classify_pairs(pairs(all));
    for (std::int64_t i = 0; i < scores.count; ++i) {
      nlohmann::ordered_json classes;
      for (std::int64_t j = 0; j < scores.dimensions; ++j)
        classes[encoder.classes()[static_cast<std::size_t>(j)]] = scores.row(i)[static_cast<std::size_t>(j)];
      const nlohmann::ordered_json report{{"text", all[static_cast<std::size_t>(i)]}, {"scores", classes}};
      fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
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
  sub->add_option("texts", command->texts, "The texts");
  sub->add_option("--file", command->file, "More texts, one per line; - reads standard input");
  sub->add_option("--second", command->second, "The second text of each pair, for models that compare two");
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
