// How many tokens per second a model writes for many texts at once.
//
//   serving_bench FOLDER --sequences 1 8 64 --prompt 128 --tokens 128 [--device webgpu] [--weights int8] [--sampled]
//                 [--drafts N] [--trace FILE] [--random] [--check] [--profile]
//
// With --check it first compares texts written together with the same texts written alone.
// With --random FOLDER needs only a config.json; random weights are first written there, in f16.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <jerboa/base/float16.h>
#include <jerboa/jerboa.h>
#include <jerboa/language/runner.h>

using namespace jerboa;

namespace {

struct Arguments {
  std::filesystem::path folder;
  std::vector<int> sequences{1, 8};
  int prompt = 128, tokens = 128, drafts = 0, context = 1024;
  std::string device = "cpu", weights, trace;
  bool sampled = false, random = false, check = false, profile = false;
};

Arguments parse(int count, char** values) {
  Arguments out;
  std::string flag;
  for (int i = 1; i < count; ++i) {
    const std::string value = values[i];
    if (value == "--sampled")
      out.sampled = true;
    else if (value == "--random")
      out.random = true;
    else if (value == "--check")
      out.check = true;
    else if (value == "--profile")
      out.profile = true;
    else if (value.starts_with("--")) {
      flag = value;
      if (flag == "--sequences") out.sequences.clear();
    } else if (flag == "--sequences")
      out.sequences.push_back(std::stoi(value));
    else if (flag == "--prompt")
      out.prompt = std::stoi(value);
    else if (flag == "--tokens")
      out.tokens = std::stoi(value);
    else if (flag == "--drafts")
      out.drafts = std::stoi(value);
    else if (flag == "--context")
      out.context = std::stoi(value);
    else if (flag == "--device")
      out.device = value;
    else if (flag == "--weights")
      out.weights = value == "int8" ? "i8" : value == "int4" ? "i4" : value;
    else if (flag == "--trace")
      out.trace = value;
    else if (flag.empty())
      out.folder = value;
    else
      throw UsageError("unknown flag " + flag);
  }
  if (out.folder.empty()) throw UsageError("usage: serving_bench FOLDER [--sequences N…] [--device NAME] …");
  return out;
}

// A tokenizer of 256 byte tokens: the contents of texts do not matter here.
std::string byte_tokenizer() {
  nlohmann::json vocabulary;
  for (int i = 0; i < 256; ++i) vocabulary[fmt::format("t{}", i)] = i;
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"decoder", nullptr},
                        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "t0"}}}}
      .dump();
}

void write_random_weights(const std::filesystem::path& folder) {
  const models::Config config = models::Config::open(folder);
  const Graph graph = trace([&] {
    models::GraphInputs inputs{.last = 1, .weights = DType::f16};
    inputs.tensors["ids"] = tensor_input("ids", {1, 1}, DType::i32);
    output("logits", models::family_of(config).logits(config, inputs));
  });
  SplitMix random(1);
  std::vector<std::uint16_t> block((1u << 20) + 7);  // an odd length, so that rows differ
  for (auto& value : block) value = f32_to_f16(static_cast<float>((random.uniform() - 0.5) * std::sqrt(12.0) * 0.02));
  const std::uint16_t one = f32_to_f16(1);
  std::vector<std::vector<std::uint16_t>> values;
  std::vector<TensorView> views;
  for (const TensorInfo& tensor : graph.tensors) {
    if (tensor.storage != Storage::param) continue;
    const Sizes shape = evaluate(tensor.type.shape, {});
    std::vector<std::uint16_t> elements(static_cast<std::size_t>(element_count(shape)), one);
    if (shape.size() > 1)
      for (std::size_t at = 0; at < elements.size(); at += block.size())
        std::copy_n(block.begin(), std::min(block.size(), elements.size() - at),
                    elements.begin() + static_cast<std::ptrdiff_t>(at));
    values.push_back(std::move(elements));
    views.push_back({tensor.name, StoredType::F16, shape, std::as_bytes(std::span(values.back()))});
  }
  write_safetensors(folder / "model.safetensors", views);
  write_file_atomically(folder / "tokenizer.json", byte_tokenizer());
}

std::vector<std::int32_t> random_prompt(int length, std::int64_t vocabulary, std::uint64_t seed) {
  SplitMix random(seed);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  for (auto& token : tokens) token = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary)));
  return tokens;
}

GenerateOptions options_of(const Arguments& arguments, std::uint64_t seed) {
  GenerateOptions options{.max_tokens = arguments.tokens,
                          .sampling = SamplerOptions{.temperature = arguments.sampled ? 0.8f : 0.0f, .seed = seed},
                          .drafts = arguments.drafts};
  if (arguments.sampled) {
    options.sampling->top_k = 50;
    options.sampling->top_p = 0.95f;
  }
  return options;
}

// Counts the tokens of texts written together, up to the first difference, that match those of the same texts written
// alone, and those of the same texts sampled on the host.
void check(language::Runner& runner, const Arguments& arguments) {
  const std::int64_t vocabulary = runner.model().vocabulary_size();
  std::vector<language::Stream> together;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    together.push_back(runner.submit(random_prompt(arguments.prompt, vocabulary, seed), options_of(arguments, seed)));
  std::int64_t equal = 0, on_host = 0, all = 0;
  for (std::uint64_t seed = 0; seed < together.size(); ++seed) {
    const auto tokens = together[seed].wait().tokens;
    GenerateOptions options = options_of(arguments, seed);
    const auto agree = [&] {
      const auto alone = runner.submit(random_prompt(arguments.prompt, vocabulary, seed), options).wait().tokens;
      return std::mismatch(tokens.begin(), tokens.end(), alone.begin(), alone.end()).first - tokens.begin();
    };
    all += std::ssize(tokens);
    equal += agree();
    options.sampler = [&] { return std::make_unique<Sampler>(*options.sampling); };
    on_host += agree();
  }
  fmt::print("of {} tokens written together, {} match those written alone, {} those sampled on the host\n", all, equal,
             on_host);
}

struct Measured {
  double seconds, first_token, batch, dispatches;
  std::int64_t generated, drafted, accepted;
};

Measured measure(language::Runner& runner, const Arguments& arguments, int sequences, std::uint64_t seed) {
  const language::Statistics before = runner.statistics();
  std::vector<language::Stream> streams;
  for (int i = 0; i < sequences; ++i) {
    const std::uint64_t text_seed = seed + static_cast<std::uint64_t>(i);
    streams.push_back(runner.submit(random_prompt(arguments.prompt, runner.model().vocabulary_size(), text_seed),
                                    options_of(arguments, text_seed)));
  }
  double first = 0;
  for (language::Stream& stream : streams) {
    const Generation result = stream.wait();
    if (result.reason == StopReason::failed) throw Error(result.error);
    first += result.prompt_seconds / sequences;
  }
  const language::Statistics after = runner.statistics();
  std::int64_t rows = 0, steps = 0;
  for (const auto& [size, count] : after.decode_batch) {
    const auto known = before.decode_batch.find(size);
    const std::int64_t fresh = count - (known == before.decode_batch.end() ? 0 : known->second);
    rows += fresh * size;
    steps += fresh;
  }
  const std::int64_t generated = after.generated - before.generated;
  return {after.seconds - before.seconds,
          first,
          steps > 0 ? static_cast<double>(rows) / static_cast<double>(steps) : 0,
          static_cast<double>(after.dispatches - before.dispatches) / static_cast<double>(generated),
          generated,
          after.drafted - before.drafted,
          after.accepted - before.accepted};
}

// The kernels of the program that decodes this many texts at once, after one more text per row.
void profile(language::Runner& runner, const Arguments& arguments, int sequences) {
  Session& session = runner.model().session();
  const std::string wanted = sequences == 1 ? "decode table" : fmt::format("decode rows={} ", sequences);
  for (const EntryInfo& entry : session.entries()) {
    if (!entry.name.starts_with(wanted)) continue;
    session.set_profiling(entry.name, true);
    Arguments few = arguments;
    few.tokens = 8;
    measure(runner, few, sequences, 5);
    fmt::print("{}\n{}", entry.name, print(session.profile(entry.name)).substr(0, 4000));
    session.set_profiling(entry.name, false);
  }
}

}  // namespace

int main(int count, char** values) try {
  const Arguments arguments = parse(count, values);
  if (arguments.random) write_random_weights(arguments.folder);
  LanguageModelOptions options{.device = Device::by_name(arguments.device), .context = arguments.context};
  if (!arguments.weights.empty()) options.weights = dtype_from_name(arguments.weights);
  options.sequences = *std::max_element(arguments.sequences.begin(), arguments.sequences.end());
  options.cache_tokens = static_cast<std::int64_t>(options.sequences + 1) * (arguments.prompt + arguments.tokens + 64);
  language::Runner runner(language::Model::load(arguments.folder, options));
  if (arguments.check) check(runner, arguments);
  if (!arguments.trace.empty()) runner.start_trace();
  fmt::print("{:>9} {:>10} {:>10} {:>12} {:>10} {:>11} {:>10}\n", "sequences", "tokens/s", "seconds", "first token",
             "rows/step", "dispatches", "accepted");
  std::uint64_t seed = 1;
  for (const int sequences : arguments.sequences) {
    measure(runner, arguments, sequences, seed += 1000);  // also compiles
    const Measured result = measure(runner, arguments, sequences, seed += 1000);
    fmt::print("{:>9} {:>10.1f} {:>10.3f} {:>10.3f} s {:>10.1f} {:>11.2f} {:>5}/{}\n", sequences,
               static_cast<double>(result.generated) / result.seconds, result.seconds, result.first_token, result.batch,
               result.dispatches, result.accepted, result.drafted);
    std::fflush(stdout);
    if (arguments.profile) profile(runner, arguments, sequences);
  }
  fmt::print("{}", print(runner.statistics()));
  if (!arguments.trace.empty()) runner.write_trace(arguments.trace);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "serving_bench: {}\n", error.what());
  return 1;
}
