#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/encoder_options.h"

namespace jerboa::cli {
namespace {

struct RerankCommand {
  EncoderFlags flags;
  std::string query, format = "json";
  TextFlags documents;

  void run() const {
    flags.check();
    const auto all = documents.read();
    TextEncoder encoder = flags.open();
    for (const Match& match : encoder.rerank(query, all)) {
      if (format == "text") {
        fmt::print("{:.4f}  {}\n", match.score, all[static_cast<std::size_t>(match.index)]);
        continue;
      }
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
  command->documents.add_to(*sub, "documents");
  add_format_to(*sub, command->format);
  add_examples(*sub, {"jerboa rerank FOLDER \"how do I undo a commit?\" -f notes.txt --format text"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
