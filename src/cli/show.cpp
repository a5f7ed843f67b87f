#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/model_record.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

void show_model(const std::string& name, bool json) {
  const StoredModel model = need_stored(name);
  const ModelRecord record = read_record(model);
  if (json) {
    nlohmann::ordered_json out = to_json(record);
    out["name"] = model.name;
    out["path"] = model.model.string();
    out["bytes"] = folder_bytes(model.folder);
    return write_text(out.dump(1) + "\n");
  }
  std::string out =
      fmt::format("name    {}\nsource  {}\npulled  {}\nsize    {}\npath    {}\n", model.name, record.source,
                  record.time, readable_bytes(folder_bytes(model.folder)), model.model.string());
  for (const auto& file : record.files)
    out += fmt::format("  {:<36} {:>10}  {}\n", file.path, readable_bytes(file.bytes), file.sha256);
  for (const char* weights : {"int8", "int4"})
    if (std::filesystem::exists(model.folder / weights / "config.json"))
      out += fmt::format("quantised weights are kept: {} ({})\n", weights,
                         readable_bytes(folder_bytes(model.folder / weights)));
  write_text(out);
}

}  // namespace

void add_show(CLI::App& app) {
  struct Arguments {
    std::string name;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  auto* sub = app.add_subcommand("show", "Show where a pulled model comes from, and its files");
  sub->add_option("model", arguments->name, "Its name")->required();
  sub->add_flag("--json", arguments->json, "Print JSON");
  add_examples(*sub, {"jerboa show minimind2-small", "jerboa show minimind2-small --json"});
  sub->callback([arguments] { show_model(arguments->name, arguments->json); });
}

}  // namespace jerboa::cli
