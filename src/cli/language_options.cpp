#include "cli/language_options.h"

#include <cstdio>
#include <fmt/format.h>
#include <random>

#include <jerboa/base/error.h>
#include <jerboa/base/file.h>
#include <jerboa/language/runner.h>

#include "base/parse_json.h"
#include "cli/arguments.h"
#include "cli/chat_asker.h"
#include "cli/store.h"
#include "cli/terminal.h"

namespace jerboa::cli {
namespace {

constexpr int token_limit = 1 << 24;

// Errors in constraints name the flag, and the file if there is one.
template <class Compile>
std::shared_ptr<const Grammar> compiled(const std::string& flag, const Compile& compile) {
  try {
    return compile();
  } catch (const ConstraintError& error) {
    throw BadArguments(fmt::format("{}: {}", flag, error.what()));
  } catch (const UsageError& error) {
    throw BadArguments(fmt::format("{}: {}", flag, error.what()));
  }
}

nlohmann::ordered_json read_tools(const std::string& path) {
  nlohmann::ordered_json tools;
  try {
    tools = parse_ordered_json(FileContent(path).text(), path);
  } catch (const FileError& error) {
    throw BadArguments(fmt::format("--tools: {}", error.what()));
  }
  if (!tools.is_array()) throw BadArguments(fmt::format("--tools: {} must hold a JSON list", path));
  if (tools.empty()) throw BadArguments(fmt::format("--tools: {} lists no tools", path));
  check_described(tools, "--tools: " + path);
  return tools;
}

}  // namespace

std::optional<DType> weights_type(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return dtype_from_name(name == "int8" ? "i8" : name == "int4" ? "i4" : name);
}

std::optional<Precision> precision_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return name == "mixed" ? Precision::mixed_f16 : Precision::full;
}

void ModelFlags::add_to(CLI::App& command, const std::string& context_help) {
  command.add_option("--device", device, "best, cpu, webgpu, webgpu:NAME or reference")
      ->check(device_name())
      ->capture_default_str();
  command.add_option("--threads", threads, "Run on the CPU with this many threads; by default one per core")
      ->check(whole_number(1, 1024));
  command
      .add_option("--weights", weights, "Type of the weights: f32, f16, bf16, int8 or int4; by default as in the file")
      ->check(one_of({"f32", "f16", "bf16", "int8", "int4"}));
  command
      .add_option("--precision", precision,
                  "full, or mixed: products of many tokens round their operands to f16. By default full, but mixed for "
                  "models that predict tokens, with weights in f16, on a GPU that multiplies f16 matrices")
      ->check(one_of({"full", "mixed"}));
  command.add_option("--context", context, context_help)->check(whole_number(1, token_limit));
}

void DecoderFlags::add_to(CLI::App& command, const std::string& context_help) {
  ModelFlags::add_to(command, context_help);
  command
      .add_option("--cache", cache,
                  "Type of the key/value cache: f32, f16 or int8; by default f16 on a GPU with weights in f16, "
                  "otherwise f32")
      ->check(one_of({"f32", "f16", "int8"}));
}

void ModelFlags::check() const {
  if (threads > 0 && device != "best" && device != "cpu")
    throw BadArguments(fmt::format("--threads are the CPU's, but --device is {}", device));
}

Device ModelFlags::chosen_device() const { return threads > 0 ? Device::cpu(threads) : Device::by_name(device); }

LanguageModelOptions DecoderFlags::options() const {
  LanguageModelOptions options{.device = chosen_device(), .context = context, .weights = weights_type(weights)};
  options.precision = precision_of(precision);
  options.cache = weights_type(cache);
  return options;
}

LanguageModel DecoderFlags::open(const std::string& model) const {
  const std::filesystem::path path = model_path_for(model, weights_type(weights));
  const Waiting waiting(fmt::format("loading {}", model));
  return LanguageModel::load(path, options());
}

void DraftFlags::add_drafts_to(CLI::App& command, const std::string& whose) {
  command
      .add_option("--drafts", drafts,
                  "Draft up to this many tokens per step, from what followed the same words before or with "
                  "--draft-model; the text stays the same. By default 0, or 4 with --draft-model")
      ->check(whole_number(0, 64));
  command.add_option("--draft-model", draft_model,
                     "A smaller model with the same tokenizer, by name or path, used as the draft model" + whose);
}

void DraftFlags::check_drafts() const {
  if (!draft_model.empty() && drafts == 0) throw BadArguments("--draft-model needs --drafts above 0");
}

std::filesystem::path DraftFlags::draft_path() const {
  return draft_model.empty() ? "" : model_path_for(draft_model, std::nullopt);
}

LanguageModel LanguageFlags::open(const std::string& model) const {
  // Found before the model is loaded, so that a wrong name fails early.
  const std::filesystem::path drafts_with = draft_path();
  LanguageModel opened = DecoderFlags::open(model);
  if (!trace.empty()) opened.runner().start_trace();
  if (!draft_model.empty()) {
    const Waiting waiting(fmt::format("loading {}", draft_model));
    opened.draft_with(drafts_with, {.device = chosen_device()});  // --context applies to the main model only
  }
  return opened;
}

void LanguageFlags::write_trace(LanguageModel& model) const {
  if (!trace.empty()) model.runner().write_trace(trace);
}

void LanguageFlags::add_sampling_to(CLI::App& command) {
  command.add_option("--max-tokens", max_tokens, "Maximum tokens of an answer; by default what the context holds")
      ->check(whole_number(1, token_limit));
  command
      .add_option("--temperature", temperature,
                  "Sampling temperature; 0 always picks the most likely token. By default, this and the options below "
                  "are as the model's folder recommends")
      ->check(number_from(0, 1000));
  command.add_option("--top-k", top_k, "Sample from the k most likely tokens; 0 keeps all")
      ->check(whole_number(0, token_limit));
  command.add_option("--top-p", top_p, "Sample from the most likely tokens that together have this probability")
      ->check(number_above(0, 1));
  command.add_option("--min-p", min_p, "Drop tokens less likely than this times the most likely one")
      ->check(number_from(0, 1));
  command
      .add_option("--repetition-penalty", repetition_penalty, "Above 1, makes tokens that already occurred less likely")
      ->check(number_above(0, 1000));
  command
      .add_option("--presence-penalty", presence_penalty, "Subtracted from the logits of tokens that are in the answer")
      ->check(number_from(-100, 100));
  command.add_option("--frequency-penalty", frequency_penalty, "The same, once for each occurrence")
      ->check(number_from(-100, 100));
  command.add_option("--seed", seed, "Random seed, for reproducible answers; by default random")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()));
  one_value_each(command.add_option("--stop", stop, "End the answer before this text; may be given several times"));
  auto* greedy_flag = command.add_flag("--greedy", greedy, "Always pick the most likely token");
  for (const char* other : {"--temperature", "--top-k", "--top-p", "--min-p"})
    greedy_flag->excludes(command.get_option(other));
}

void LanguageFlags::add_to(CLI::App& command) {
  DecoderFlags::add_to(command,
                       "Maximum tokens of prompt and answer together; by default the model's limit, at most 4096");
  add_sampling_to(command);
  auto* by_schema = command.add_option("--schema", schema, "A file with a JSON schema that the answer must conform to")
                        ->check(existing_file());
  command.add_option("--regex", regex, "A regular expression that the whole answer must match")->excludes(by_schema);
  command.add_option("--tools", tools, "A file with a JSON list of tools, for the model's chat template")
      ->check(existing_file());
  add_drafts_to(command);
  command.add_option("--trace", trace, "Write a trace of all steps to this file, for ui.perfetto.dev")
      ->check(place_for_file());
  command.add_flag("--stats", stats, "Print the number of tokens and the speed to standard error");
}

void LanguageFlags::check() {
  ModelFlags::check();
  if (context > 0 && max_tokens && *max_tokens > context)
    throw BadArguments(fmt::format("--max-tokens {} exceeds --context {}", *max_tokens, context));
  check_drafts();
  for (const std::string& text : stop)
    if (text.empty()) throw BadArguments("--stop needs a text that is not empty");
  if (!schema.empty())
    grammar_ = compiled("--schema", [&] { return compile_json_schema_text(FileContent(schema).text()); });
  if (!regex.empty()) grammar_ = compiled("--regex", [&] { return compile_regex(regex); });
  if (!tools.empty()) tools_ = read_tools(tools);
}

GenerateOptions LanguageFlags::generation(const LanguageModel& model) const {
  SamplerOptions sampling = model.recommended_sampling();
  sampling.temperature = greedy ? 0 : temperature.value_or(sampling.temperature);
  sampling.top_k = top_k.value_or(sampling.top_k);
  sampling.top_p = top_p.value_or(sampling.top_p);
  sampling.min_p = min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
  sampling.presence_penalty = presence_penalty.value_or(sampling.presence_penalty);
  sampling.frequency_penalty = frequency_penalty.value_or(sampling.frequency_penalty);
  sampling.seed = seed.value_or(std::random_device{}());
  return {.max_tokens = max_tokens.value_or(model.context()),
          .sampling = sampling,
          .stop = stop,
          .grammar = grammar_,
          .drafts = max_drafts()};
}

double token_rate(const Generation& result) {
  const auto followed = static_cast<double>(result.tokens.size()) - 1;
  return result.token_seconds > 0 && followed > 0 ? followed / result.token_seconds : 0;
}

void print_stats(const LanguageModel& model, const Generation& result) {
  const auto computed = static_cast<double>(result.prompt_tokens - result.reused);
  note(fmt::format(
      "{:.1f} million parameters; prompt: {} tokens ({} reused) in {:.3f} s, {:.1f} tokens/s; answer: {} tokens "
      "(stopped by {}), {:.1f} tokens/s",
      static_cast<double>(model.parameters()) * 1e-6, result.prompt_tokens, result.reused, result.prompt_seconds,
      result.prompt_seconds > 0 ? computed / result.prompt_seconds : 0, result.tokens.size(), name(result.reason),
      token_rate(result)));
  if (result.drafted > 0) note(fmt::format("{} of {} guesses were right", result.accepted, result.drafted));
}

bool is_cut(const Generation& result) {
  return result.reason == StopReason::length || result.reason == StopReason::context;
}

void note_cut(const Generation& result) {
  if (result.reason == StopReason::length)
    note(fmt::format("the answer was cut after {}; raise --max-tokens for more",
                     counted(std::ssize(result.tokens), "token")));
  if (result.reason == StopReason::context)
    note(fmt::format("the answer was cut: {} tokens fill the context; raise --context for more, if the model has it",
                     result.prompt_tokens + std::ssize(result.tokens)));
}

}  // namespace jerboa::cli
