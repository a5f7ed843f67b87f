#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/memory_options.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;
using Access = memory::DocumentMemory::Access;

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The files in a folder and its subfolders, except hidden ones, in order.
std::vector<fs::path> files_under(const fs::path& folder) {
  std::vector<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->path().filename().string().starts_with('.'))
      entry.disable_recursion_pending();
    else if (entry->is_regular_file())
      files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct MemoryAdd {
  MemoryFlags flags;
  std::vector<std::string> paths;
  std::string name;

  void run() {
    flags.check();
    check();
    memory::DocumentMemory memory = flags.open(Access::create);
    const auto encoder = flags.open_encoder(memory);
    const CatchInterrupts catching;
    for (const std::string& path : paths) {
      if (path == "-")
        add(memory, *encoder, name, read_input());
      else if (fs::is_directory(path))
        add_folder(memory, *encoder, path);
      else
        add(memory, *encoder, name.empty() ? fs::canonical(path).string() : name, FileContent(path).text());
    }
    note(fmt::format("{} added{}", counted(added_, "document"),
                     same_ > 0 ? fmt::format(", {} there already", counted(same_, "document")) : ""));
    if (skipped_ > 0) note(fmt::format("{} left out: not a text in UTF-8, or empty", counted(skipped_, "file")));
  }

 private:
  void check() const {
    const bool reads_input = std::find(paths.begin(), paths.end(), "-") != paths.end();
    if (reads_input && name.empty()) throw BadArguments("standard input needs a --name");
    if (!name.empty() && paths.size() > 1) throw BadArguments("--name is for a single document");
    for (const std::string& path : paths)
      if (path != "-" && !fs::exists(path)) throw BadArguments(fmt::format("{}: no such file or folder", path));
    if (!name.empty() && fs::is_directory(paths[0])) throw BadArguments("--name is for a document, not for a folder");
  }

  void add(memory::DocumentMemory& memory, memory::Encoder& encoder, const std::string& document,
           std::string_view text) {
    if (CatchInterrupts::take()) throw Exit{ExitCode::interrupted};
    const Waiting waiting("adding " + document);
    ++(memory.add(document, text, encoder) ? added_ : same_);
  }

  void add_folder(memory::DocumentMemory& memory, memory::Encoder& encoder, const std::string& folder) {
    for (const fs::path& file : files_under(folder)) {
      try {
        add(memory, encoder, fs::canonical(file).string(), FileContent(file).text());
      } catch (const memory::NotTextError&) {
        ++skipped_;
      }
    }
  }

  std::int64_t added_ = 0, same_ = 0, skipped_ = 0;
};

struct MemorySearch {
  MemoryFlags flags;
  std::string query;
  std::int64_t count = 5;
  bool json = false;

  void run() const {
    flags.check();
    if (query.empty()) throw BadArguments("the query is empty; give some text");
    memory::DocumentMemory memory = flags.open(Access::existing);
    const auto encoder = flags.open_encoder(memory);
    const bool colours = has_colours(1);
    for (const memory::Passage& passage : memory.search(query, count, *encoder)) {
      if (json)
        write_text(json_line({{"document", passage.document},
                              {"begin", passage.begin},
                              {"score", passage.score},
                              {"text", passage.text}}));
      else
        write_text(fmt::format("{}\n{}\n\n", bold(fmt::format("{:.3f}  {}", passage.score, passage.document), colours),
                               passage.text));
    }
  }
};

struct MemoryList {
  MemoryFlags flags;
  bool json = false;

  void run() const {
    const memory::DocumentMemory memory = flags.open(Access::existing);
    for (const memory::Document& document : memory.documents()) {
      if (json)
        write_text(json_line({{"name", document.name},
                              {"bytes", document.bytes},
                              {"chunks", document.chunks},
                              {"added", document.added}}));
      else
        write_text(fmt::format("{}  {:>10}  {:>12}  {}\n", document.added, readable_bytes(document.bytes),
                               counted(document.chunks, "chunk"), document.name));
    }
    if (!json && !memory.model().empty()) note("the vectors are those of " + memory.model());
  }
};

struct MemoryRemove {
  MemoryFlags flags;
  std::vector<std::string> names;

  void run() const {
    memory::DocumentMemory memory = flags.open(Access::existing);
    for (const std::string& name : names) {
      std::error_code ignored;
      const std::string path = fs::weakly_canonical(name, ignored).string();
      if (!memory.remove(name) && !memory.remove(path))
        throw BadArguments(fmt::format("there is no document {}; see jerboa memory list", name));
    }
  }
};

void add_memory_add(CLI::App& app) {
  auto command = std::make_shared<MemoryAdd>();
  auto* sub = app.add_subcommand("add", "Add documents, or replace those that have changed");
  sub->add_option("paths", command->paths, "Text files, folders of them, or - for standard input")->required();
  sub->add_option("--name", command->name, "The name of the document; by default its path");
  command->flags.add_path_to(*sub);
  command->flags.add_model_to(*sub);
  add_examples(*sub, {"jerboa memory add notes/ README.md", "man bash | jerboa memory add - --name bash"});
  sub->callback([command] { command->run(); });
}

void add_memory_search(CLI::App& app) {
  auto command = std::make_shared<MemorySearch>();
  auto* sub = app.add_subcommand("search", "Find the passages that are most similar to a text");
  sub->add_option("query", command->query, "The text")->required();
  sub->add_option("--top", command->count, "How many passages to print")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  sub->add_flag("--json", command->json, "Print each passage as a line of JSON");
  command->flags.add_path_to(*sub);
  command->flags.add_model_to(*sub);
  add_examples(*sub, {"jerboa memory search \"how do I undo a commit?\" --top 3"});
  sub->callback([command] { command->run(); });
}

void add_memory_list(CLI::App& app) {
  auto command = std::make_shared<MemoryList>();
  auto* sub = app.add_subcommand("list", "List the documents");
  sub->add_flag("--json", command->json, "Print each document as a line of JSON");
  command->flags.add_path_to(*sub);
  add_examples(*sub, {"jerboa memory list", "jerboa memory list --json"});
  sub->callback([command] { command->run(); });
}

void add_memory_remove(CLI::App& app) {
  auto command = std::make_shared<MemoryRemove>();
  auto* sub = app.add_subcommand("rm", "Remove documents");
  sub->add_option("names", command->names, "Their names, as jerboa memory list shows them")->required();
  command->flags.add_path_to(*sub);
  add_examples(*sub, {"jerboa memory rm bash notes/old.txt"});
  sub->callback([command] { command->run(); });
}

}  // namespace

void add_memory(CLI::App& app) {
  auto* sub = app.add_subcommand("memory", "Keep documents, and search them");
  sub->require_subcommand(1);
  add_examples(*sub, {"jerboa memory add notes/", "jerboa memory search \"how do I undo a commit?\""});
  add_memory_add(*sub);
  add_memory_search(*sub);
  add_memory_list(*sub);
  add_memory_remove(*sub);
}

}  // namespace jerboa::cli
