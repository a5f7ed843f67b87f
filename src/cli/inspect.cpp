#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <memory>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/runtime/session.h>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/inspection.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

struct InspectCommand {
  std::string target, graph, html;
  bool tensors = false, json = false, kernels = false;
  InspectOptions options;

  void run() {
    if (!html.empty() || kernels) options.compile = true;
    const Inspection inspection = look();
    if (!html.empty()) {
      write_file_atomically(html, to_html(inspection));
      return note(fmt::format("{}: a page about {}", html, inspection.path));
    }
    if (!graph.empty()) return write_text(graph_text(inspection));
    if (json) return write_text(to_json(inspection).dump(1) + "\n");
    write_text(facts_text(inspection));
    if (tensors || options.statistics) write_text(tensors_text(inspection));
    if (kernels) write_text(kernels_text(inspection));
    if (!inspection.times.empty()) write_text(print(inspection.times));
  }

 private:
  Inspection look() const {
    const Waiting waiting(fmt::format("inspecting {}", target));
    return inspect(model_path(target), options);
  }

  std::string graph_text(const Inspection& inspection) const {
    if (!inspection.graph)
      throw UsageError(fmt::format("{} is a {}, which has no graph; --graph is for models", target, inspection.kind));
    return graph == "json"  ? to_json(*inspection.graph) + "\n"
           : graph == "dot" ? to_dot(*inspection.graph)
                            : print(*inspection.graph);
  }

  static std::string facts_text(const Inspection& inspection) {
    std::string out = fmt::format("{:<16} {}\n{:<16} {}\n", "kind", inspection.kind, "path", inspection.path);
    for (const auto& [name, value] : inspection.facts) out += fmt::format("{:<16} {}\n", name, value);
    std::int64_t bytes = 0;
    for (const InspectedTensor& tensor : inspection.tensors) bytes += tensor.bytes;
    out += fmt::format("{:<16} {}, {}\n", "stored", counted(std::ssize(inspection.tensors), "tensor"),
                       readable_bytes(bytes));
    for (const auto& [name, size] : inspection.memory)
      out += fmt::format("{:<16} {}\n", "weights in " + name, readable_bytes(size));
    return out;
  }

  static std::string tensors_text(const Inspection& inspection) {
    std::string out;
    for (const InspectedTensor& tensor : inspection.tensors) {
      out += fmt::format("{:<56} {:<5} {:<18} {:>10}", tensor.name, tensor.type, shape_text(tensor.shape),
                         readable_bytes(tensor.bytes));
      if (const auto& statistics = tensor.statistics)
        out += fmt::format("  {:>10.4g} … {:<10.4g} mean {:<11.4g} std {:<10.4g} zeros {}{}", statistics->least,
                           statistics->most, statistics->mean, statistics->deviation, statistics->zeros,
                           statistics->not_finite > 0 ? fmt::format(", {} not finite", statistics->not_finite) : "");
      out += '\n';
    }
    return out;
  }

  static std::string kernels_text(const Inspection& inspection) {
    std::string out;
    for (const ProgramEntry& entry : inspection.programs)
      out += fmt::format("{}:\n{}", entry.name, print(entry.program));
    return out;
  }
};

}  // namespace

void add_inspect(CLI::App& app) {
  auto command = std::make_shared<InspectCommand>();
  auto* sub = app.add_subcommand("inspect", "Show the content of a model, a checkpoint or a program file");
  sub->add_option("model", command->target,
                  "The name of a pulled model, a Hugging Face folder, a .gguf file, a .safetensors checkpoint "
                  "or a program file")
      ->required();
  sub->add_flag("--tensors", command->tensors, "List the tensors");
  sub->add_flag("--statistics", command->options.statistics, "List the tensors with minimum, maximum, mean and more");
  sub->add_flag("--kernels", command->kernels, "List the kernels that the graph compiles to, for WebGPU");
  auto* graph =
      sub->add_option("--graph", command->graph, "Print the graph of a model: listing, json or dot (Graphviz)")
          ->check(one_of({"listing", "json", "dot"}));
  sub->add_option("--tokens", command->options.tokens, "Tokens that the graph computes at once")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--profile", command->options.profile, "Measure the kernels of a model on this device, e.g. cpu")
      ->check(device_name());
  auto* html = sub->add_option("--html", command->html, "Write one self-contained page instead")
                   ->check(place_for_file())
                   ->excludes(graph);
  sub->add_flag("--json", command->json, "Print JSON")->excludes(graph)->excludes(html);
  add_examples(*sub,
               {"jerboa inspect FOLDER --statistics", "jerboa inspect model.gguf --graph dot | dot -Tsvg >graph.svg",
                "jerboa inspect stories15m --html stories15m.html --profile cpu"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
