#include "cli/language_options.h"

#include <cstdio>
#include <fmt/format.h>
#include <random>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>

namespace jerboa::cli {

void LanguageFlags::add_to(CLI::App& command) {
  command.add_option("--device", device, "best, cpu, webgpu, webgpu:NAME or reference");
  command.add_option("--weights", weights, "How weights are kept: f32, f16, bf16, int8 or int4; by default as stored")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8", "int4"}));
  command
      .add_option("--context", context, "The most tokens of prompt and answer; by default the model's, at most 4096")
      ->check(CLI::PositiveNumber);
  command.add_option("--max-tokens", max_tokens, "The most tokens of an answer")->check(CLI::PositiveNumber);
  command.add_option("--temperature", temperature, "How freely tokens are chosen; 0: the likeliest");
  command.add_option("--top-k", top_k, "Choose among the k likeliest");
  command.add_option("--top-p", top_p, "Choose among the likeliest that together have this probability");
  command.add_option("--min-p", min_p, "Drop what is less likely than this times the likeliest");
  command.add_option("--repetition-penalty", repetition_penalty, "Above 1: tokens that were there are less likely");
  command.add_option("--seed", seed, "For the same answer again; by default another each time");
  command.add_option("--stop", stop, "End the answer before this text");
  auto* by_schema =
      command.add_option("--schema", schema, "A file with a JSON schema: the answer is JSON that is valid");
  command.add_option("--regex", regex, "The answer matches this from its first to its last byte")->excludes(by_schema);
  command.add_flag("--greedy", greedy, "Always the likeliest token");
  command.add_flag("--stats", stats, "Print how many tokens there were, and how fast");
}

LanguageModel LanguageFlags::open(const std::string& folder) const {
  LanguageModelOptions options{.device = Device::by_name(device), .context = context};
  if (!weights.empty())
    options.weights = dtype_from_name(weights == "int8" ? "i8" : weights == "int4" ? "i4" : weights);
  return LanguageModel::load(folder, options);
}

GenerateOptions LanguageFlags::generation(const LanguageModel& model) const {
  SamplerOptions sampling = model.recommended_sampling();
  sampling.temperature = greedy ? 0 : temperature.value_or(sampling.temperature);
  sampling.top_k = top_k.value_or(sampling.top_k);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.seed = seed.value_or(std::random_device{}());
  GenerateOptions options{.max_tokens = max_tokens, .sampling = sampling, .stop = stop};
  if (!schema.empty()) options.grammar = compile_json_schema_text(FileContent(schema).text());
  if (!regex.empty()) options.grammar = compile_regex(regex);
  return options;
}

void write_text(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw FileError("standard output cannot be written");
}

void print_stats(const LanguageModel& model, const Generation& result) {
  const auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; };
  const auto computed = static_cast<double>(result.prompt_tokens - result.reused);
  const auto followed = static_cast<double>(result.tokens.size()) - 1;  // the first comes with the prompt
  fmt::print(stderr,
             "{:.1f} million parameters; prompt: {} tokens ({} reused) in {:.3f} s, {:.1f} a second; answer: {} tokens "
             "(stopped by {}), {:.1f} a second\n",
             static_cast<double>(model.parameters()) * 1e-6, result.prompt_tokens, result.reused, result.prompt_seconds,
             rate(computed, result.prompt_seconds), result.tokens.size(), name(result.reason),
             rate(followed, result.token_seconds));
}

}  // namespace jerboa::cli
