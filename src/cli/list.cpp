#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>

#include "cli/arguments.h"
#include "cli/catalogue.h"
#include "cli/commands.h"
#include "cli/model_record.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct ListCommand {
  bool json = false, names = false, available = false;

  void run() const {
    if (available) return list_available();
    auto all = nlohmann::ordered_json::array();
    std::string lines;
    const std::vector<StoredModel> models = stored_models();
    for (const StoredModel& model : models) {
      const ModelRecord record = read_record(model);
      const std::int64_t bytes = folder_bytes(model.folder);
      all.push_back(
          {{"name", model.name}, {"source", record.source}, {"bytes", bytes}, {"path", model.model.string()}});
      lines += names ? model.name + "\n"
                     : fmt::format("{:<28} {:>10}  {}\n", model.name, readable_bytes(bytes), record.source);
    }
    write_text(json ? all.dump(1) + "\n" : lines);
    if (models.empty() && !json && !names)
      note(fmt::format("no models in {}; jerboa list --available shows what jerboa pull knows by name",
                       home_folder().string()));
  }

 private:
  void list_available() const {
    auto all = nlohmann::ordered_json::array();
    std::string lines;
    for (const CatalogueEntry& entry : catalogue()) {
      all.push_back({{"name", entry.name}, {"about", entry.about}});
      lines += names ? fmt::format("{}\n", entry.name) : fmt::format("{:<18} {}\n", entry.name, entry.about);
    }
    write_text(json ? all.dump(1) + "\n" : lines);
  }
};

}  // namespace

void add_list(CLI::App& app) {
  auto command = std::make_shared<ListCommand>();
  auto* sub = app.add_subcommand("list", "List the pulled models");
  sub->add_flag("--available", command->available, "List the models that jerboa pull knows by name instead");
  auto* names = sub->add_flag("--names", command->names, "Print only names");
  sub->add_flag("--json", command->json, "Print JSON")->excludes(names);
  add_examples(*sub, {"jerboa list", "jerboa list --available"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
