#include <CLI/CLI.hpp>
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/base/file.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/models/greedy.h>
#include <jerboa/models/quantise.h>
#include <jerboa/models/save_folder.h>
#include <jerboa/runtime/tune.h>

#include "cli/arguments.h"
#include "cli/bench_gpt.h"
#include "cli/commands.h"
#include "cli/gpu_clock.h"
#include "cli/language_options.h"
#include "cli/product_name.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

std::vector<std::string> training_names() {
  std::vector<std::string> names;
  for (const TrainingShape& shape : training_shapes())
    for (const std::string_view suffix : {std::string_view(), mixed_suffix})
      names.push_back(shape.name + std::string(suffix));
  return names;
}

Graph training_graph_of(TrainingShape shape, Precision chosen) {
  assign_paths(shape.model);
  const Shape ids{shape.batch, shape.length};
  const Loss loss = [&](const Inputs& in) { return next_token_loss(std::as_const(shape.model), in); };
  PrecisionOptions precision;
  precision.precision = chosen;
  return training_graph({{"ids", ids, DType::i32}, {"targets", ids, DType::i32}}, loss, Adam{}, {}, precision);
}

// Throws BadArguments with a suggestion if there is no such model.
std::filesystem::path path_of_model(const std::string& name) {
  try {
    return model_path(name);
  } catch (const BadArguments& error) {
    const std::string meant = nearest(name, training_names());
    throw BadArguments(meant.empty() ? fmt::format("--shapes: {}", error.what())
                                     : fmt::format("--shapes: there is no {}; did you mean {}?", name, meant));
  }
}

constexpr std::string_view webgpu = "webgpu";

constexpr std::pair<const char*, TunedKind> kind_names[] = {{"products", TunedKind::products},
                                                            {"attention", TunedKind::attention},
                                                            {"rows", TunedKind::rows},
                                                            {"columns", TunedKind::columns}};

std::set<TunedKind> kinds_of(const std::vector<std::string>& names) {
  std::set<TunedKind> kinds;
  for (const auto& [name, kind] : kind_names)
    if (std::find(names.begin(), names.end(), name) != names.end()) kinds.insert(kind);
  return kinds;
}

struct TuneCommand {
  std::vector<std::string> shapes{"small"}, kinds{"products", "attention", "rows", "columns"}, weights;
  std::string device = "webgpu", output;
  int prompt = 512;
  double seconds = 0.1;
  bool json = false;

  void run() const {
    if (!device.starts_with("webgpu"))
      throw BadArguments("--device must be webgpu or webgpu:NAME: only GPUs are tuned");
    std::vector<Graph> graphs;
    for (const std::string& name : shapes) add_graphs(name, graphs);
    // Ignores what was tuned before, even if its file is damaged.
    const std::string adapter = device == webgpu ? "" : device.substr(webgpu.size() + 1);
    const Device chosen = Device::webgpu({.adapter = adapter, .tuned_forms = ""});
    const std::filesystem::path file = output_file(chosen);
    GpuClock clock(chosen);
    const auto report = [this](const TunedKernel& kernel) {
      write_text((json ? json_of(kernel) : row_of(kernel)) + "\n");
    };
    const auto skipped = [](const std::string& form, const std::string& reason) {
      note(fmt::format("left out: {}: {}", form, reason));
    };
    if (!json)
      write_text(fmt::format("device: {}\n{:<60} {:>12} {:>12} {:>5} {}\n", chosen.description(), "kernel", "untuned",
                             "tuned", "forms", "form"));
    const std::string text = tune_kernels(chosen, graphs,
                                          {.kinds = kinds_of(kinds),
                                           .seconds = seconds,
                                           .warm = [&] { clock.warm(); },
                                           .report = report,
                                           .skipped = skipped});
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    write_file_atomically(file, text);
    note(fmt::format("{}: written; WebGPU devices of this kind use it from now on{}", file.string(),
                     output.empty() ? "" : " if JERBOA_TUNED names it"));
  }

 private:
  static std::string row_of(const TunedKernel& kernel) {
    return fmt::format("{:<60} {:>9.1f} us {:>9.1f} us {:>5} {}", kernel.shape, kernel.untuned_seconds * 1e6,
                       kernel.seconds * 1e6, kernel.forms, kernel.form);
  }
  static std::string json_of(const TunedKernel& kernel) {
    return nlohmann::ordered_json{{"kernel", kernel.shape},
                                  {"untuned_seconds", kernel.untuned_seconds},
                                  {"seconds", kernel.seconds},
                                  {"forms", kernel.forms},
                                  {"form", kernel.form}}
        .dump();
  }

  std::filesystem::path output_file(const Device& chosen) const {
    if (!output.empty()) return output;
    const auto file = default_tuned_forms(webgpu_adapter(chosen.backend()));
    if (!file) throw BadArguments("there is no cache folder to write to (JERBOA_CACHE is empty): add --output FILE");
    return *file;
  }

  void add_graphs(const std::string& name, std::vector<Graph>& graphs) const {
    if (const auto product = product_of(name)) return graphs.push_back(product->graph());
    for (const TrainingShape& shape : training_shapes()) {
      if (name == shape.name) return graphs.push_back(training_graph_of(shape, Precision::full));
      if (name == shape.name + std::string(mixed_suffix))
        return graphs.push_back(training_graph_of(shape, Precision::mixed_f16));
    }
    add_model(name, graphs);
  }

  // Adds a decoder's steps: one token, and a prompt.
  void add_model(const std::string& name, std::vector<Graph>& graphs) const {
    const std::filesystem::path path = path_of_model(name);
    const models::ModelFolder folder = models::open_model_folder(path);
    const auto config = models::Config::parse(folder.files.at("config.json"), (path / "config.json").string());
    if (models::family_of(config).graphs.decoder == nullptr)
      throw BadArguments(fmt::format("--shapes: {} does not write text; tune takes decoders", name));
    for (const DType type : types_of(folder)) {
      const models::GreedyOptions options{.cache = {.capacity = 2 * prompt, .chunk = prompt}, .weights = type};
      graphs.push_back(models::greedy_step_graph(config, options));
      graphs.push_back(with_precision(models::greedy_prompt_graph(config, Dim(prompt), options), Precision::mixed_f16));
    }
  }

  std::vector<DType> types_of(const models::ModelFolder& folder) const {
    if (weights.empty()) return {models::quantised_type(*folder.weights).value_or(DType::f16)};
    std::vector<DType> types;
    for (const std::string& type : weights) types.push_back(*weights_type(type));
    return types;
  }
};

}  // namespace

void add_tune(CLI::App& app) {
  auto command = std::make_shared<TuneCommand>();
  auto* sub =
      app.add_subcommand("tune", "Measure which forms of kernels are fastest on this GPU, and use them from now on");
  sub->add_option("--shapes", command->shapes,
                  fmt::format("What to measure, one or more of: a training step ({}), a model by its name or "
                              "folder, or a product such as matmul1024x256x768_f16_weights",
                              fmt::join(training_names(), ", ")))
      ->capture_default_str();
  sub->add_option("--kinds", command->kinds,
                  "Which kernels to measure, one or more of: products of matrices, attention and its gradient, rows "
                  "that are reduced (norms, softmax, losses), columns that are summed up")
      ->check(one_of({"products", "attention", "rows", "columns"}))
      ->capture_default_str();
  sub->add_option("--weights", command->weights,
                  "For models, one or more types of the weights; by default int8 or int4 if the model is stored so, "
                  "otherwise f16")
      ->check(one_of({"f32", "f16", "int8", "int4"}));
  sub->add_option("--prompt", command->prompt, "For models, the tokens of a prompt that are processed at once")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  sub->add_option("--device", command->device, "webgpu, or webgpu:NAME with part of an adapter's name")
      ->check(device_name())
      ->capture_default_str();
  sub->add_option("--seconds", command->seconds, "Maximum time to measure each form")
      ->check(number_above(0, 3600))
      ->capture_default_str();
  sub->add_option("--output", command->output,
                  "The file to write; by default the one that devices of this kind load automatically");
  sub->add_flag("--json", command->json, "Print each kernel as a line of JSON");
  add_examples(*sub, {"jerboa tune --shapes small gpt2_mixed", "jerboa tune --shapes FOLDER --weights f16 int4",
                      "jerboa tune --shapes small --output tuned.json; JERBOA_TUNED=tuned.json jerboa bench small "
                      "--device webgpu"});
  sub->callback([command] { command->run(); });
}

}  // namespace jerboa::cli
