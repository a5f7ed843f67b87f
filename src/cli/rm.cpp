#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/model_record.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

void remove_models(const std::vector<std::string>& names) {
  std::vector<StoredModel> models;
  for (const std::string& name : names) models.push_back(need_stored(name));  // check all names first
  for (const StoredModel& model : models) {
    const std::int64_t bytes = folder_bytes(model.folder);
    std::error_code error;
    std::filesystem::remove(model.folder / record_name, error);  // first, so that remains are not listed as a model
    if (!error) std::filesystem::remove_all(model.folder, error);
    if (error) throw FileError(fmt::format("{}: {}", model.folder.string(), error.message()));
    note(fmt::format("{} is removed: {}", model.name, readable_bytes(bytes)));
  }
}

}  // namespace

void add_rm(CLI::App& app) {
  auto names = std::make_shared<std::vector<std::string>>();
  auto* sub = app.add_subcommand("rm", "Remove pulled models");
  sub->add_option("model", *names, "Their names")->required();
  add_examples(*sub, {"jerboa rm minimind2-small stories15m"});
  sub->callback([names] { remove_models(*names); });
}

}  // namespace jerboa::cli
