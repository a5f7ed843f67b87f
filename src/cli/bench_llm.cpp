#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include <jerboa/base/float16.h>
#include <jerboa/frontend/compile.h>
#include <jerboa/models/greedy.h>
#include <jerboa/models/quantise.h>

#include "cli/arguments.h"
#include "cli/bench_shapes.h"
#include "cli/commands.h"
#include "cli/gpu_clock.h"
#include "cli/language_options.h"
#include "cli/llama_peer.h"
#include "cli/profile_table.h"
#include "cli/random_weights.h"
#include "cli/timing.h"

// Prefill and decoding with random weights in the shapes of real models.
namespace jerboa::cli {
namespace {

// Vectors keep their initial values: 1 in norms, 0 in biases.
void fill_weights(Session& session, const Graph& graph) {
  RandomWeights random;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param || tensor.type.shape.size() < 2 || !tensor.tied_to.empty()) continue;
    const std::int64_t bytes = element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8;
    session.upload_param(tensor.name,
                         random.bytes(tensor.type.dtype, tensor.name.ends_with(models::scales_suffix), bytes));
  }
}

// The bytes of parameters that a step reads in full: all but embedding tables.
std::int64_t bytes_read(const Graph& graph) {
  std::set<TensorId> read;
  for (const Node& node : graph.nodes)
    for (const TensorId input : node.inputs)
      if (input != no_tensor && graph.tensor(input).storage == Storage::param && node.op != Op::embedding &&
          node.op != Op::embedding_quantised)
        read.insert(input);
  std::int64_t bytes = 0;
  for (const TensorId id : read) bytes += element_count(graph.shape(id)).value() * bits(graph.type(id).dtype) / 8;
  return bytes;
}

struct LlmOptions {
  std::vector<std::string> models{"qwen3-0.6b"}, weights{"f16"};
  std::string device = "webgpu", precision = "full", cache = "f32", against;
  std::filesystem::path llama_libraries = default_llama_libraries();
  int prompt = 512, chunk = 0, tokens = 64, turns = 3, threads = 0;
  bool json = false, profile = false;
};

// A decoder with a prompt, and the loop that decodes after it.
class Decoding {
 public:
  Decoding(const std::string& model, DType weights, const LlmOptions& options, const Device& device)
      : prompt_(options.prompt),
        chunk_(options.chunk > 0 ? std::min(options.chunk, options.prompt) : options.prompt),
        session_(device) {
    const models::Config config = shape_config(model);
    const models::GreedyOptions greedy{.cache = {.capacity = options.prompt + options.tokens + warm_up_steps,
                                                 .chunk = chunk_,
                                                 .dtype = *weights_type(options.cache)},
                                       .weights = weights};
    const Graph step = models::greedy_step_graph(config, greedy);
    bytes_ = bytes_read(step);
    vocabulary_ = config.size("vocab_size");
    const double start = now();
    session_.declare(step);
    fill_weights(session_, step);
    const double filled = now();
    session_.add_entry("decode", step);
    session_.add_entry("prefill", with_precision(models::greedy_prompt_graph(config, Dim::symbol("T", chunk_), greedy),
                                                 precision_of(options.precision).value_or(Precision::full)));
    fill_seconds = filled - start;
    compile_seconds = now() - filled;
  }

  // Prefills an empty cache with the prompt; returns the seconds until the first token is known.
  double feed_prompt() {
    const double start = now();
    Result result;
    for (int from = 0; from < prompt_; from += chunk_) {
      const int count = std::min(chunk_, prompt_ - from);
      HostTensor ids(DType::i32, {1, count}), positions(DType::i32, {1, count}), lengths(DType::i32, {1});
      for (int i = 0; i < count; ++i) {
        ids.set_number(i,
                       static_cast<double>(split_mix(static_cast<std::uint64_t>(from) + static_cast<std::uint64_t>(i)) %
                                           static_cast<std::uint64_t>(vocabulary_)));
        positions.set_number(i, from + i);
      }
      lengths.set_number(0, from + count);
      result = session_.run("prefill", {{"ids", ids}, {"positions", positions}, {"lengths", lengths}});
    }
    first_token_ = result.get("token").item();
    return now() - start;
  }

  // Decodes this many tokens, waiting only for the last; returns the seconds per token.
  double decode(int tokens) {
    const double start = now();
    Result result;
    for (int i = 0; i < tokens; ++i) result = session_.run("decode", {});
    result.get("token");
    return (now() - start) / tokens;
  }
  void warm_up() { decode(warm_up_steps); }

  // The token after the prompt and those that follow, to compare what devices and forms of kernels compute.
  std::string tokens(int count) {
    feed_prompt();
    std::string text = fmt::format("{}", first_token_);
    for (int i = 0; i < count; ++i) text += fmt::format(" {}", session_.run("decode", {}).get("token").item());
    return text;
  }

  std::vector<KernelTime> profile(const std::string& entry) {
    session_.set_profiling(entry, true);
    if (entry == "prefill")
      feed_prompt();
    else
      decode(1);
    auto times = session_.profile(entry);
    session_.set_profiling(entry, false);
    return times;
  }

  int kernels(const std::string& entry) const { return session_.kernel_count(entry); }
  std::int64_t bytes() const { return bytes_; }
  double fill_seconds = 0, compile_seconds = 0;

 private:
  static constexpr int warm_up_steps = 8;
  int prompt_, chunk_, vocabulary_ = 0;
  std::int64_t bytes_ = 0;
  double first_token_ = 0;
  Session session_;
};

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

void run_bench_llm(const LlmOptions& options) {
  const Device device = options.device == "cpu" ? Device::cpu(options.threads) : Device::by_name(options.device);
  GpuClock clock(device);
  auto json = nlohmann::ordered_json::array();
  Ceilings ceilings;
  if (options.profile) {
    clock.warm();
    ceilings = measure_ceilings(device);
  }
  if (!options.json) {
    fmt::print("device: {}\n{}{:<16} {:<7} {:>9} {:>9} {:>12} {:>9} {:>10} {:>10} {:>9} {:>8} {:>8}\n",
               device.description(), ceilings.str(), "model", "weights", "tokens/s", "best", "ms per token", "TB/s",
               "dispatches", "prompt ms", "tokens/s", "compile", "clock");
  }
  for (const std::string& model : options.models)
    for (const std::string& weights : options.weights) {
      const DType dtype = *dtype_from_name(weights == "int8" ? "i8" : weights == "int4" ? "i4" : weights);
      Decoding decoding(model, dtype, options, device);
      std::unique_ptr<LlamaPeer> peer;
      if (!options.against.empty())
        peer = std::make_unique<LlamaPeer>(
            shape_config(model),
            LlamaPeerOptions{options.llama_libraries, weights, options.threads, options.prompt, options.tokens});
      decoding.feed_prompt();
      decoding.warm_up();
      std::vector<double> prompts, steps, peer_prompts, peer_steps;
      double slowest_clock = 1;
      for (int turn = 0; turn < options.turns; ++turn) {
        clock.warm();
        prompts.push_back(decoding.feed_prompt());
        decoding.warm_up();
        steps.push_back(decoding.decode(options.tokens));
        slowest_clock = std::min(slowest_clock, clock.speed());
        if (!peer) continue;
        peer_prompts.push_back(peer->feed_prompt());
        peer_steps.push_back(peer->decode(options.tokens));
      }
      const double prompt = median(prompts), step = median(steps);
      const double best = 1 / least(steps);
      const double rate = static_cast<double>(decoding.bytes()) / step * 1e-12;
      if (options.json) {
        json.push_back({{"model", model},
                        {"weights", weights},
                        {"cache", options.cache},
                        {"precision", options.precision},
                        {"tokens_per_second", 1 / step},
                        {"best_tokens_per_second", best},
                        {"weight_bytes", decoding.bytes()},
                        {"decode_dispatches", decoding.kernels("decode")},
                        {"weights_terabytes_per_second", rate},
                        {"prompt_tokens", options.prompt},
                        {"prompt_seconds", prompt},
                        {"compile_seconds", decoding.compile_seconds},
                        {"fill_seconds", decoding.fill_seconds},
                        {"clock", slowest_clock},
                        {"tokens", decoding.tokens(options.tokens)}});
        if (peer)
          json.back().update({{"llama_cpp_tokens_per_second", 1 / median(peer_steps)},
                              {"llama_cpp_best_tokens_per_second", 1 / least(peer_steps)},
                              {"llama_cpp_prompt_seconds", median(peer_prompts)}});
      } else {
        fmt::print(
            "{:<16} {:<7} {:>9.1f} {:>9.1f} {:>12.3f} {:>9.3f} {:>10} {:>10.2f} {:>9.0f} {:>6.1f} s {:>6.0f} %\n",
            model, weights, 1 / step, best, step * 1e3, rate, decoding.kernels("decode"), prompt * 1e3,
            options.prompt / prompt, decoding.compile_seconds, slowest_clock * 100);
        if (peer)
          fmt::print("  {:<22} {:>9.1f} {:>9.1f} {:>12.3f} {:>31.2f} {:>9.0f}\n  {:<22} {:>9.2f} {:>9.2f} {:>54.2f}\n",
                     "llama.cpp", 1 / median(peer_steps), 1 / least(peer_steps), median(peer_steps) * 1e3,
                     median(peer_prompts) * 1e3, options.prompt / median(peer_prompts), "times as fast",
                     median(peer_steps) / step, least(peer_steps) * best, median(peer_prompts) / prompt);
        std::fflush(stdout);
      }
      if (!options.profile) continue;
      if (options.json) json.back()["profile"] = {{"ceilings", ceilings.json()}};
      for (const char* entry : {"prefill", "decode"}) {
        clock.warm();
        const std::vector<KernelTime> times = decoding.profile(entry);
        if (options.json)
          json.back()["profile"][entry] = profile_json(times, ceilings, true);
        else
          fmt::print("{}:\n{}", entry, profile_table(times, ceilings, true));
      }
    }
  if (options.json) fmt::print("{}\n", json.dump(1));
}

}  // namespace

void add_bench_llm(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "llm", "Measure prefill and greedy decoding of language models with random weights, in the shapes of real ones");
  auto options = std::make_shared<LlmOptions>();
  command->add_option("--model", options->models, "One or more shapes")->check(one_of(shape_names()));
  command->add_option("--weights", options->weights, "One or more types of the weights")
      ->check(one_of({"f32", "f16", "bf16", "int8", "int4"}));
  command->add_option("--cache", options->cache, "The type of the key/value caches")
      ->check(one_of({"f32", "f16", "int8"}));
  command->add_option("--device", options->device, "cpu, webgpu or webgpu:NAME")->check(device_name());
  command->add_option("--threads", options->threads, "Number of threads; by default one per core")
      ->check(whole_number(1, 1024));
  command->add_option("--prompt", options->prompt, "Tokens of the prompt")->check(whole_number(1, 1 << 24));
  command->add_option("--chunk", options->chunk, "Prompt tokens per run; by default all of them")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--tokens", options->tokens, "Tokens to decode")->check(whole_number(1, 1 << 24));
  command->add_option("--precision", options->precision, "full, or mixed: products of the prompt in f16")
      ->check(one_of({"full", "mixed"}));
  command->add_option("--turns", options->turns, "How often to measure; medians are printed")
      ->check(whole_number(1, 1 << 24));
  command->add_option("--against", options->against, "A peer to measure in turns, for Llamas on the CPU")
      ->check(one_of({"llama.cpp"}));
  command->add_option("--llama-cpp", options->llama_libraries,
                      "The folder of llama.cpp's libraries, from npm's node-llama-cpp");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--profile", options->profile, "Print the time of each kernel");
  add_examples(*command, {"jerboa bench llm --model llama8x512 --device cpu --tokens 64"});
  command->callback([options] {
    if (!options->against.empty() && options->device != "cpu")
      throw BadArguments("--against llama.cpp measures the CPU: add --device cpu");
    run_bench_llm(*options);
  });
}

}  // namespace jerboa::cli
