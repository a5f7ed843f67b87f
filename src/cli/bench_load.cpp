#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <jerboa/base/error.h>
#include <jerboa/language/language_model.h>

#include "cli/arguments.h"
#include "cli/bench_shapes.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"
#include "cli/random_model.h"
#include "cli/timing.h"
#include "models/temporary_folder.h"

// Measures how long it takes to load language models with random weights in the shapes of real ones.
namespace jerboa::cli {
namespace {

namespace fs = std::filesystem;
using language::LoadSeconds;

struct LoadOptions {
  std::string model = "llama-8b", device = "cpu";
  std::vector<std::string> weights{"f16", "int4"};
  fs::path folder;
  int turns = 3;
  bool cold = false, json = false;
};

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw FileError(fmt::format("{}: cannot open", path.string()));
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Evicts these files from the page cache.
void drop_from_page_cache(const std::vector<fs::path>& files) {
  for (const fs::path& path : files) {
    const OpenFile file(path);
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// The fraction of these files that is in the page cache.
double share_in_page_cache(const std::vector<fs::path>& files) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t cached = 0, all = 0;
  for (const fs::path& path : files) {
    const OpenFile file(path);
    const auto bytes = static_cast<std::size_t>(fs::file_size(path));
    void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped == MAP_FAILED) continue;
    std::vector<unsigned char> pages((bytes + page - 1) / page);
    if (::mincore(mapped, bytes, pages.data()) == 0) {
      all += pages.size();
      cached += static_cast<std::size_t>(
          std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1) != 0; }));
    }
    ::munmap(mapped, bytes);
  }
  return all == 0 ? 0 : static_cast<double>(cached) / static_cast<double>(all);
}

struct Loads {
  std::vector<LoadSeconds> seconds;
  double cached = 0;  // fraction of the files in the page cache before the last load
  std::int64_t device_bytes = 0;

  double median_of(double LoadSeconds::*phase) const {
    std::vector<double> values;
    for (const LoadSeconds& load : seconds) values.push_back(load.*phase);
    return median(values);
  }
};

constexpr std::pair<const char*, double LoadSeconds::*> phases[] = {
    {"whole", &LoadSeconds::whole},         {"opening", &LoadSeconds::opening},
    {"planning", &LoadSeconds::planning},   {"weights", &LoadSeconds::weights},
    {"reading", &LoadSeconds::reading},     {"converting", &LoadSeconds::converting},
    {"uploading", &LoadSeconds::uploading}, {"compiling", &LoadSeconds::compiling},
    {"finishing", &LoadSeconds::finishing}};

void print_table(const std::map<std::string, Loads>& loads, const std::vector<std::string>& order, double gigabytes) {
  fmt::print("{:<8} {:>8} {:>8}", "weights", "seconds", "GB/s");
  for (const auto& [name, phase] : phases)
    if (phase != &LoadSeconds::whole) fmt::print(" {:>10}", name);
  fmt::print(" {:>10} {:>8}\n", "GB loaded", "cached");
  for (const std::string& weights : order) {
    const Loads& of = loads.at(weights);
    const double whole = of.median_of(&LoadSeconds::whole);
    fmt::print("{:<8} {:>8.2f} {:>8.2f}", weights, whole, gigabytes / whole);
    for (const auto& [name, phase] : phases)
      if (phase != &LoadSeconds::whole) fmt::print(" {:>10.2f}", of.median_of(phase));
    fmt::print(" {:>10.2f} {:>6.0f} %\n", static_cast<double>(of.device_bytes) * 1e-9, of.cached * 100);
  }
}

nlohmann::ordered_json json_of(const std::map<std::string, Loads>& loads, const std::vector<std::string>& order,
                               const LoadOptions& options, double gigabytes, double writing) {
  nlohmann::ordered_json json{{"model", options.model},
                              {"device", options.device},
                              {"threads", std::thread::hardware_concurrency()},
                              {"file_gigabytes", gigabytes},
                              {"writing_seconds", writing},
                              {"cold", options.cold},
                              {"loads", nlohmann::ordered_json::array()}};
  for (const std::string& weights : order) {
    const Loads& of = loads.at(weights);
    nlohmann::ordered_json row{{"weights", weights}, {"turns", of.seconds.size()}};
    for (const auto& [name, phase] : phases) row[fmt::format("{}_seconds", name)] = of.median_of(phase);
    row["gigabytes_per_second"] = gigabytes / of.median_of(&LoadSeconds::whole);
    row["loaded_bytes"] = of.device_bytes;
    row["share_in_page_cache"] = of.cached;
    json["loads"].push_back(row);
  }
  return json;
}

fs::path chosen_folder(const LoadOptions& options) {
  if (!options.folder.empty()) return options.folder;
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  if (!error) return folder;
  const char* asked = std::getenv("TMPDIR");
  throw UsageError(fmt::format("there is no folder for temporary files: {}; name another one with --folder",
                               asked == nullptr ? "/tmp" : asked));
}

void run_bench_load(const LoadOptions& options) {
  const CatchInterrupts interrupts;  // removes the folder even after Ctrl-C
  const RandomModel model(shape_config(options.model));
  const double gigabytes = static_cast<double>(model.bytes()) * 1e-9;
  const std::string device = Device::by_name(options.device).description();
  const fs::path folder = chosen_folder(options);
  if (std::error_code error; fs::space(folder, error).available < model.bytes() && !error)
    throw UsageError(
        fmt::format("{} has no room for {:.1f} GB; name another folder with --folder", folder.string(), gigabytes));
  const models::TemporaryFolder made(folder / "jerboa-bench-load");
  const double start = now();
  const std::vector<fs::path> files = model.write(made.path());
  const double writing = now() - start;
  if (!options.json)
    fmt::print("device: {}\n{}: {:.2f} GB in bf16, written to {} in {:.1f} s; {} threads\n", device, options.model,
               gigabytes, folder.string(), writing, std::thread::hardware_concurrency());
  std::map<std::string, Loads> loads;
  for (int turn = 0; turn < options.turns; ++turn)
    for (const std::string& weights : options.weights) {
      if (options.cold) drop_from_page_cache(files);
      Loads& of = loads[weights];
      of.cached = share_in_page_cache(files);
      // A new device for each run, because a device does not compile the same shader twice.
      const LanguageModel loaded =
          LanguageModel::load(made.path(), {.device = Device::by_name(options.device),
                                            .weights = weights_type(weights),
                                            .on_weights = [](std::int64_t, std::int64_t) { end_if_interrupted(); }});
      of.seconds.push_back(loaded.load_seconds());
      of.device_bytes = loaded.statistics().weight_bytes;
      end_if_interrupted();
    }
  if (options.json)
    fmt::print("{}\n", json_of(loads, options.weights, options, gigabytes, writing).dump(1));
  else
    print_table(loads, options.weights, gigabytes);
}

}  // namespace

void add_bench_load(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "load",
      "Measure how long a language model takes to load: writes one with random weights in the shapes of a real one to "
      "a temporary folder, loads it in turns, each on a new device, and removes it. Prints medians; opening, planning, "
      "weights and finishing add up to the whole. Reading and converting weights are added up over all threads, and "
      "happen at the same time as uploading and compiling. «cached» is how much of the files the system had in memory "
      "before the last load; compiled shaders stay on disk for the next load unless JERBOA_CACHE is empty");
  auto options = std::make_shared<LoadOptions>();
  command->add_option("--model", options->model, "The shapes")->check(one_of(shape_names()))->capture_default_str();
  command->add_option("--weights", options->weights, "One or more types of the weights")
      ->check(one_of({"f32", "f16", "bf16", "int8", "int4"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "cpu, webgpu or webgpu:NAME")
      ->check(device_name())
      ->capture_default_str();
  command
      ->add_option("--folder", options->folder,
                   "A folder to write the model below; by default the system's folder for temporary files")
      ->check(CLI::ExistingDirectory);
  command->add_option("--turns", options->turns, "How often to load each; medians are printed")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_flag("--cold", options->cold, "Evict the files from the page cache before each load");
  command->add_flag("--json", options->json, "Print JSON");
  add_examples(*command, {"jerboa bench load --model llama-1b --weights f16 int4",
                          "jerboa bench load --model llama-8b --device webgpu --cold --json"});
  command->callback([options] { run_bench_load(*options); });
}

}  // namespace jerboa::cli
