#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <jerboa/base/random.h>
#include <jerboa/frontend/nn.h>
#include <jerboa/frontend/trainer.h>
#include <jerboa/models/family.h>

#include "cli/arguments.h"
#include "cli/bench_gpt.h"
#include "cli/commands.h"
#include "cli/gpu_clock.h"
#include "cli/product_name.h"
#include "cli/profile_table.h"
#include "cli/timing.h"
#include "cli/torch_peer.h"

namespace jerboa::cli {
namespace {

// Workloads. torch_peer.cpp, which --against torch runs, has the same ones.

struct Perceptron {
  nn::Linear hidden1{784, 512}, hidden2{512, 512}, out{512, 10};
  JERBOA_FIELDS(hidden1, hidden2, out)
  Tensor operator()(Tensor x) const { return out(relu(hidden2(relu(hidden1(x))))); }
};

HostTensor random_floats(Sizes shape, std::uint64_t seed) {
  HostTensor values(DType::f32, std::move(shape));
  SplitMix random(seed);
  for (float& value : values.f32()) value = static_cast<float>(random.uniform() - 0.5);
  return values;
}

HostTensor random_ids(Sizes shape, int bound, std::uint64_t seed) {
  HostTensor values(DType::i32, std::move(shape));
  SplitMix random(seed);
  for (std::int32_t& value : values.as<std::int32_t>())
    value = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(bound)));
  return values;
}

// A workload to measure: run() repeats it `repeats` times.
struct Workload {
  std::string name;
  std::string peer;  // its name in torch_peer.cpp
  double flops = 0;  // per run, where the rate is of interest
  std::function<void()> run;
  double compile_seconds = 0;
  int kernels = 0;
  std::int64_t activations = 0;
  std::function<std::vector<KernelTime>()> profile;
  std::function<MemoryReport()> memory;
  int repeats = 1;
  int tokens = 0;  // computed per run, for language models
};

// The kernel times of one run.
std::vector<KernelTime> profile_of(Module& module, const std::function<void()>& run) {
  module.session().set_profiling("run", true);
  run();
  auto times = module.session().profile("run");
  module.session().set_profiling("run", false);
  return times;
}

// Products measure throughput rather than a GPU's latency, so this many are submitted at once.
constexpr int products_at_once = 32;

Workload matmul_workload(const std::string& name, const ProductName& product, const Device& device) {
  auto module = std::make_shared<Module>(compile(product.graph(), {.device = device}));
  const int repeats = device.name() == "webgpu" ? products_at_once : 1;
  Workload work{name,
                name,
                2.0 * static_cast<double>(product.m * product.k * product.n),
                [module, repeats] {
                  for (int i = 1; i < repeats; ++i) module->run({});
                  module->run({}).get("output");
                },
                0,
                module->kernel_count(),
                0,
                {},
                {},
                repeats};
  work.profile = [module] { return profile_of(*module, [&] { module->run({}).get("output"); }); };
  return work;
}

template <class Model, class Loss, class Optimizer = Adam>
Workload training_workload(const std::string& name, Model model, Loss loss, const Batch& batch, const Device& device,
                           const Optimizer& optimizer = Optimizer{.lr = 1e-4}) {
  const double start = now();
  CompileOptions options{.device = device};
  if (name.ends_with(mixed_suffix)) options.precision.precision = Precision::mixed_f16;
  auto module = std::make_shared<Module>(compile_module(std::move(model), loss, specs_of(batch), optimizer, options));
  Workload work{
      name, name, 0, [module, batch] { module->step(batch).loss(); }, now() - start, module->kernel_count(), 0,
      {},   {},   1};
  work.activations = module->session().memory_report("run").activations;
  work.profile = [module, run = work.run] { return profile_of(*module, run); };
  work.memory = [module] { return module->session().memory_report("run"); };
  return work;
}

template <class Optimizer>
Workload gpt_workload(const std::string& name, TrainingShape shape, const Device& device, const Optimizer& optimizer) {
  const Sizes sizes{shape.batch, shape.length};
  const Batch data{{"ids", random_ids(sizes, shape.model.vocab, 1)},
                   {"targets", random_ids(sizes, shape.model.vocab, 2)}};
  return training_workload(name, std::move(shape.model), next_token_loss, data, device, optimizer);
}

std::optional<Workload> gpt_workload(const std::string& name, const Device& device) {
  for (const TrainingShape& shape : training_shapes()) {
    const bool is_plain = name == shape.name || name == shape.name + std::string(mixed_suffix);
    if (is_plain && shape.decays_weights) return gpt_workload(name, shape, device, AdamW{.lr = 1e-4});
    if (is_plain) return gpt_workload(name, shape, device, Adam{.lr = 1e-4});
    if (name == shape.name + "_clipped") return gpt_workload(name, shape, device, Adam{.lr = 1e-4, .clip_norm = 1});
  }
  return std::nullopt;
}

// A Llama of 8 layers × 512, as in torch_peer.cpp: either prefill of many tokens, or one decode step after 512.
Workload llama_workload(const std::string& name, int time, const Device& device, DType weights) {
  constexpr int context = 1024, before = 512;
  const auto config = models::Config::parse(R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 8,
      "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1536, "vocab_size": 32000,
      "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})");
  const Graph graph = forward_graph(
      {{"ids", {1, time}, DType::i32}, {"positions", {1, time}, DType::i32}, {"lengths", {1}, DType::i32}},
      [&](const Inputs& in) {
        return models::family_of(config).logits(
            config,
            {.tensors = in.all(), .cache = {.capacity = context, .chunk = time}, .last = 1, .weights = weights});
      });
  HostTensor positions(DType::i32, {1, time}), lengths(DType::i32, {1});
  const int first = time == 1 ? before : 0;
  for (int i = 0; i < time; ++i) positions.set_number(i, first + i);
  lengths.set_number(0, first + time);
  const Batch inputs{{"ids", random_ids({1, time}, 32000, 1)}, {"positions", positions}, {"lengths", lengths}};
  const double start = now();
  auto module = std::make_shared<Module>(compile(graph, {.device = device}));
  Workload work{
      name, "", 0, [module, inputs] { module->run(inputs).get("output"); }, now() - start, module->kernel_count(), 0,
      {},   {}, 1};
  work.activations = module->session().memory_report("run").activations;
  work.tokens = time;
  work.profile = [module, run = work.run] { return profile_of(*module, run); };
  return work;
}

std::vector<std::string> workload_names() {
  return {"matmul512",
          "matmul1024",
          "matmul4096x768x3072",
          "matmul4096",
          "matmul4096_weights",
          "matmul4096_f16",
          "matmul4096_f16_weights",
          "small",
          "small_clipped",
          "small_mixed",
          "tiny",
          "tiny_clipped",
          "tiny_mixed",
          "mlp",
          "gpt2",
          "gpt2_mixed",
          "llama_prefill",
          "llama_prefill_int8",
          "llama_decode",
          "llama_decode_f16",
          "llama_decode_bf16",
          "llama_decode_int8",
          "llama_decode_int4"};
}

// The default workloads; the others may be too large for a CPU.
std::vector<std::string> default_names(const Device& device) {
  std::vector<std::string> names = workload_names();
  if (device.name() != "webgpu")
    std::erase_if(names, [](const auto& name) {
      return name.starts_with("gpt2") || name.starts_with("matmul4096_") || name == "matmul4096";
    });
  return names;
}

// The suffix of a workload's name, with types named as in --weights.
std::string weights_suffix(DType weights) {
  if (weights == DType::f32) return "";
  if (weights == DType::i8) return "_int8";
  if (weights == DType::i4) return "_int4";
  return fmt::format("_{}", jerboa::name(weights));
}

Workload make(const std::string& name, const Device& device) {
  if (const auto product = product_of(name)) return matmul_workload(name, *product, device);
  if (auto training = gpt_workload(name, device)) return *std::move(training);
  for (const DType weights : {DType::f32, DType::f16, DType::bf16, DType::i8, DType::i4}) {
    const std::string suffix = weights_suffix(weights);
    if (name == "llama_prefill" + suffix) return llama_workload(name, 512, device, weights);
    if (name == "llama_decode" + suffix) return llama_workload(name, 1, device, weights);
  }
  if (name == "mlp") {
    const Batch data{{"images", random_floats({128, 784}, 1)}, {"labels", random_ids({128}, 10, 2)}};
    return training_workload(name, Perceptron{}, classification_loss, data, device);
  }
  throw UsageError(fmt::format(
      "no workload is named {}; available: {}, and products of other sizes as matmulROWSxINNERxCOLUMNS[_f16][_weights]",
      name, fmt::join(workload_names(), ", ")));
}

// Measures a series of runs that takes about the given time, and returns the duration of each.
std::vector<double> measure(const Workload& work, double seconds) {
  std::vector<double> samples;
  const double end = now() + seconds;
  do {
    const double start = now();
    work.run();
    samples.push_back((now() - start) / work.repeats);
  } while (now() < end || samples.size() < 3);
  return samples;
}

struct Options {
  std::vector<std::string> names;
  std::string device = "cpu", against;
  std::vector<std::string> torch_forms{"eager", "compiled", "graph"}, torch_precisions{"f32", "tf32", "bf16"};
  int threads = 0, turns = 3;
  double seconds = 2;
  bool json = false, profile = false, no_validation = false;
  std::string trace;
};

// A mode of the peer with its measurements.
struct Peer {
  std::string form, precision;
  std::vector<double> samples;
  double clock = 1;  // the slowest that it was measured with
  std::string name() const { return precision == "f32" ? form : form + "_" + precision; }
};

// The peer's precisions that are comparable with a workload.
std::vector<std::string> precisions_for(const Workload& work, const Options& options, bool on_gpu) {
  if (!on_gpu) return {"f32"};
  if (work.name.ends_with(mixed_suffix)) return {"bf16"};
  const auto product = product_of(work.name);
  if (product && product->dtype == DType::f16) return {"f16"};
  return options.torch_precisions;
}

std::vector<Peer> peers_for(const Workload& work, const Options& options, bool on_gpu) {
  if (options.against.empty() || work.peer.empty()) return {};
  // A single product leaves nothing to compile.
  const bool product = product_of(work.name).has_value();
  std::vector<Peer> peers;
  for (const std::string& form : !on_gpu   ? std::vector<std::string>{"cpu"}
                                 : product ? std::vector<std::string>{"eager"}
                                           : options.torch_forms)
    for (const std::string& precision : precisions_for(work, options, on_gpu))
      peers.push_back({form, precision, {}, 1});
  return peers;
}

// Rates are in TFLOP/s on GPUs and in GFLOP/s elsewhere.
void print_row(const Workload& work, double seconds, bool on_gpu, double clock, const std::vector<Peer>& peers) {
  fmt::print("{:<22} {:>9.3f} ms {:>10} {:>8} {:>6.0f} ms {:>7.1f} MB", work.name, seconds * 1e3,
             work.flops > 0 ? fmt::format("{:.1f}", work.flops / seconds * (on_gpu ? 1e-12 : 1e-9)) : "", work.kernels,
             work.compile_seconds * 1e3, static_cast<double>(work.activations) * 1e-6);
  if (on_gpu) fmt::print(" {:>5.0f} %", clock * 100);
  if (work.tokens > 0) fmt::print(" {:>9.1f} tokens/s", work.tokens / seconds);
  fmt::print("\n");
  for (const Peer& peer : peers)
    fmt::print("  torch {:<14} {:>9.3f} ms {:>9.2f}x{}\n", peer.name(), median(peer.samples) * 1e3,
               median(peer.samples) / seconds, on_gpu ? fmt::format(" {:>35.0f} %", peer.clock * 100) : "");
  std::fflush(stdout);
}

nlohmann::ordered_json row_json(const Workload& work, const std::vector<double>& samples, bool on_gpu, double clock,
                                const std::vector<Peer>& peers) {
  const double seconds = median(samples);
  nlohmann::ordered_json row{{"work", work.name},
                             {"seconds", seconds},
                             {"samples", samples.size()},
                             {"kernels", work.kernels},
                             {"compile_seconds", work.compile_seconds},
                             {"activation_bytes", work.activations}};
  if (work.flops > 0) row["gflops"] = work.flops / seconds * 1e-9;
  if (on_gpu) row["clock"] = clock;
  if (work.tokens > 0) row["tokens_per_second"] = work.tokens / seconds;
  for (const Peer& peer : peers) {
    row["torch_" + peer.name() + "_seconds"] = median(peer.samples);
    if (on_gpu) row["torch_" + peer.name() + "_clock"] = peer.clock;
  }
  return row;
}

nlohmann::ordered_json memory_json(const MemoryReport& report) {
  auto tensors = nlohmann::ordered_json::array();
  for (const MemoryReport::Tensor& tensor : report.tensors)
    tensors.push_back({{"name", tensor.name},
                       {"bytes", tensor.bytes},
                       {"offset", tensor.offset},
                       {"first_kernel", tensor.first},
                       {"last_kernel", tensor.last}});
  return {{"persistent_bytes", report.persistent}, {"activation_bytes", report.activations}, {"tensors", tensors}};
}

nlohmann::ordered_json profile_of(const Workload& work, const std::vector<KernelTime>& times,
                                  const Ceilings& ceilings) {
  nlohmann::ordered_json profile{{"ceilings", ceilings.json()}, {"kernels", profile_json(times, ceilings, false)}};
  if (work.memory) profile["memory"] = memory_json(work.memory());
  return profile;
}

void run_bench(const Options& options) {
  const Device device = options.device == "cpu" ? Device::cpu(options.threads)
                        : options.no_validation ? Device::webgpu({.validation = false})
                                                : Device::by_name(options.device);
  auto json = nlohmann::ordered_json::array();
  std::vector<KernelTime> trace;
  const bool on_gpu = device.name() == "webgpu";
  GpuClock clock(device);
  Ceilings ceilings;
  if (options.profile) {
    clock.warm();
    ceilings = measure_ceilings(device);
  }
  if (!options.json) {
    fmt::print("device: {}\n{}", device.description(), ceilings.str());
    fmt::print("{:<22} {:>12} {:>10} {:>8} {:>9} {:>10}", "work", "median", on_gpu ? "TFLOP/s" : "GFLOP/s", "kernels",
               "compile", "activations");
    if (on_gpu) fmt::print(" {:>7}", "clock");
    fmt::print("\n");
  }
  for (const std::string& name : options.names.empty() ? default_names(device) : options.names) {
    const Workload work = make(name, device);
    for (int i = 0; i < 3; ++i) work.run();
    std::vector<double> measured;
    double slowest_clock = 1;
    std::vector<Peer> peers = peers_for(work, options, on_gpu);
    // All take turns, so that noise affects them equally.
    for (int turn = 0; turn < options.turns; ++turn) {
      clock.warm();
      const auto samples = measure(work, options.seconds / options.turns);
      slowest_clock = std::min(slowest_clock, clock.speed());
      measured.insert(measured.end(), samples.begin(), samples.end());
      for (Peer& peer : peers) {
        const auto theirs =
            torch_samples({work.peer, peer.form, peer.precision, options.threads, options.seconds / options.turns});
        peer.samples.insert(peer.samples.end(), theirs.seconds.begin(), theirs.seconds.end());
        peer.clock = std::min(peer.clock, theirs.clock);
      }
    }
    if (options.json) {
      json.push_back(row_json(work, measured, on_gpu, slowest_clock, peers));
    } else {
      print_row(work, median(measured), on_gpu, slowest_clock, peers);
    }
    if (!options.profile && options.trace.empty()) continue;
    clock.warm();
    std::vector<KernelTime> times = work.profile();
    if (options.profile && options.json)
      json.back()["profile"] = profile_of(work, times, ceilings);
    else if (options.profile)
      fmt::print("{}{}", profile_table(times, ceilings, false), work.memory ? print(work.memory()) : "");
    // The trace shows workloads one after another.
    const double after = trace.empty() ? 0 : trace.back().start + trace.back().seconds;
    for (KernelTime& time : times) {
      time.label = fmt::format("{}: {}", name, time.label);
      time.start += after;
      trace.push_back(std::move(time));
    }
  }
  if (!options.trace.empty()) write_trace(trace, options.trace);
  if (options.json) fmt::print("{}\n", json.dump(1));
}

}  // namespace

void add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure training steps and matrix products; medians of repeated runs");
  auto options = std::make_shared<Options>();
  command
      ->add_option("work", options->names,
                   fmt::format("What to measure; by default all: {}", fmt::join(workload_names(), ", ")))
      ->check([](const std::string& name) {
        const std::vector<std::string> names = workload_names();
        if (product_of(name) || std::find(names.begin(), names.end(), name) != names.end()) return std::string();
        const std::string meant = nearest(name, names);
        return fmt::format(
            "there is no {}; {}", name,
            meant.empty() ? "jerboa bench --help lists what can be measured" : "did you mean " + meant + "?");
      });
  command->add_option("--device", options->device, "cpu, webgpu or reference")
      ->check(device_name())
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Number of threads; by default one per core")
      ->check(whole_number(1, 1024));
  command->add_option("--seconds", options->seconds, "How long to measure each workload")
      ->check(number_above(0, 86400))
      ->capture_default_str();
  command->add_option("--turns", options->turns, "Number of turns, alternating with the peer")
      ->check(whole_number(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--against", options->against, "A peer to measure in the same run")->check(one_of({"torch"}));
  command->add_option("--torch-forms", options->torch_forms, "Modes of PyTorch to measure on a GPU")
      ->check(one_of({"eager", "compiled", "graph"}));
  command->add_option("--torch-precisions", options->torch_precisions, "Precisions of PyTorch to measure on a GPU")
      ->check(one_of({"f32", "tf32", "bf16"}));
  command->add_flag("--no-validation", options->no_validation, "Turn off WebGPU's validation of each call");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--profile", options->profile, "Print the time of each kernel and the memory use");
  command->add_option("--trace", options->trace,
                      "Write a kernel trace of one run of each workload, for ui.perfetto.dev");
  add_examples(*command, {"jerboa bench small --device cpu --threads 2", "jerboa bench --json >results.json"});
  add_bench_llm(*command);
  add_bench_load(*command);
  command->callback([options, command] {
    if (command->get_subcommands().empty()) run_bench(*options);
  });
}

}  // namespace jerboa::cli
