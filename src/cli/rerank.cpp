#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/encoder_options.h"

namespace jerboa::cli {
namespace {

struct RerankCommand {
  EncoderFlags flags;
  std::string query, file;
  std::vector<std::string> documents;

  void run() const {
    TextEncoder encoder = flags.open();
    const auto all = all_texts(documents, file);
    for (const Match& match : encoder.rerank(query, all)) {
      const nlohmann::ordered_json report{
          {"document", match.index + 1}, {"score", match.score}, {"text", all[static_cast<std::size_t>(match.index)]}};
      fmt::print("{}\n", report.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
  }
};

}  // namespace

void add_rerank(CLI::App& app) {
  auto command = std::make_shared<RerankCommand>();
  auto* sub = app.add_subcommand("rerank", "Sort documents by how well they answer a query, with a reranking model");
  command->flags.add_to(*sub);
  sub->add_option("query", command->query, "The query")->required();
  sub->add_option("documents", command->documents, "The documents");
  sub->add_option("--file", command->file, "More documents, one per line; - reads standard input");
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
