#include "cli/language_options.h"

#include <cstdio>
#include <fmt/format.h>
#include <random>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/runner.h>

namespace jerboa::cli {

std::optional<DType> weights_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return dtype_from_name(name == "int8" ? "i8" : name == "int4" ? "i4" : name);
}

void ModelFlags::add_to(CLI::App& command, const std::string& context_help) {
  command.add_option("--device", device, "best, cpu, webgpu, webgpu:NAME or reference");
  command
      .add_option("--weights", weights, "Type of the weights: f32, f16, bf16, int8 or int4; by default as in the file")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8", "int4"}));
  command.add_option("--context", context, context_help)->check(CLI::PositiveNumber);
}

void LanguageFlags::add_to(CLI::App& command) {
  ModelFlags::add_to(command,
                     "Maximum tokens of prompt and answer together; by default the model's limit, at most 4096");
  command.add_option("--max-tokens", max_tokens, "Maximum tokens of an answer")->check(CLI::PositiveNumber);
  command.add_option("--temperature", temperature, "Sampling temperature; 0 always picks the likeliest token");
  command.add_option("--top-k", top_k, "Sample from the k likeliest tokens");
  command.add_option("--top-p", top_p, "Sample from the likeliest tokens that together have this probability");
  command.add_option("--min-p", min_p, "Drop tokens less likely than this times the likeliest");
  command.add_option("--repetition-penalty", repetition_penalty,
                     "Above 1, makes tokens that already occurred less likely");
  command.add_option("--seed", seed, "Random seed, for reproducible answers; by default random");
  command.add_option("--stop", stop, "End the answer before this text");
  auto* by_schema = command.add_option("--schema", schema, "A file with a JSON schema that the answer must conform to");
  command.add_option("--regex", regex, "A regular expression that the whole answer must match")->excludes(by_schema);
  command
      .add_option(
          "--drafts", drafts,
          "Guess up to so many tokens per step from what followed the same words before; the text stays the same")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--trace", trace, "Write when each step ran to this file, for ui.perfetto.dev");
  command.add_flag("--greedy", greedy, "Always pick the likeliest token");
  command.add_flag("--stats", stats, "Print the number of tokens and the speed");
}

LanguageModelOptions ModelFlags::options() const {
  return {.device = Device::by_name(device), .context = context, .weights = weights_type(weights)};
}

LanguageModel ModelFlags::open(const std::string& path) const { return LanguageModel::load(path, options()); }

LanguageModel LanguageFlags::open(const std::string& path) const {
  LanguageModel model = ModelFlags::open(path);
  if (!trace.empty()) model.runner().start_trace();
  return model;
}

void LanguageFlags::write_trace(LanguageModel& model) const {
  if (!trace.empty()) model.runner().write_trace(trace);
}

GenerateOptions LanguageFlags::generation(const LanguageModel& model) const {
  SamplerOptions sampling = model.recommended_sampling();
  sampling.temperature = greedy ? 0 : temperature.value_or(sampling.temperature);
  sampling.top_k = top_k.value_or(sampling.top_k);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.seed = seed.value_or(std::random_device{}());
  GenerateOptions options{.max_tokens = max_tokens, .sampling = sampling, .stop = stop, .drafts = drafts};
  if (!schema.empty()) options.grammar = compile_json_schema_text(FileContent(schema).text());
  if (!regex.empty()) options.grammar = compile_regex(regex);
  return options;
}

void write_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw FileError("cannot write to standard output");
}

void print_stats(const LanguageModel& model, const Generation& result) {
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; };
  const auto computed = static_cast<double>(result.prompt_tokens - result.reused);
  const auto followed = static_cast<double>(result.tokens.size()) - 1;  // the first comes with the prompt
  fmt::print(stderr,
             "{:.1f} million parameters; prompt: {} tokens ({} reused) in {:.3f} s, {:.1f} tokens/s; answer: {} tokens "
             "(stopped by {}), {:.1f} tokens/s\n",
             static_cast<double>(model.parameters()) * 1e-6, result.prompt_tokens, result.reused, result.prompt_seconds,
             rate(computed, result.prompt_seconds), result.tokens.size(), name(result.reason),
             rate(followed, result.token_seconds));
  if (result.drafted > 0) fmt::print(stderr, "{} of {} guesses were right\n", result.accepted, result.drafted);
}

}  // namespace jerboa::cli
