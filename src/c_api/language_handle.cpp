#include "c_api/language_handle.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/compile/export.h>
#include <jerboa/models/quantise.h>

#include "base/json_value.h"
#include "base/parse_json.h"
#include "c_api/device_description.h"
#include "c_api/sampling_options.h"
#include "c_api/stored_types.h"
#include "models/param_reads.h"
#include "steps/text_options.h"
#include "steps/token_bytes.h"

namespace jerboa::c_api {
namespace {

using nlohmann::json;

Files files_of(const Bundle& request, Fields& fields, Checkpoint& checkpoint) {
  Files files;
  const json& list = fields.value("files");
  if (!list.is_array() || list.size() != request.parts.size())
    throw UsageError("files must be a list with one entry for each part of the request");
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields file(list[i], "files");
    const std::string name = file.text("name", "");
    const std::int64_t size =
        file.integer("size", static_cast<std::int64_t>(request.parts[i].size()), 0, std::int64_t{1} << 53);
    file.finish();
    if (name.ends_with(".safetensors"))
      checkpoint.add_file(name, request.parts[i], static_cast<std::uint64_t>(size));
    else
      files.emplace(name, request.parts[i]);
  }
  return files;
}

models::Config config_of(const Files& files) {
  const auto found = files.find("config.json");
  if (found == files.end()) throw UsageError("the model has no config.json");
  return models::Config::parse(found->second);
}

detail::GenerationConfig generation_of(const Files& files, const models::Config& config) {
  const auto found = files.find("generation_config.json");
  if (found == files.end()) return detail::generation_config(std::nullopt, config);
  return detail::generation_config(models::Config::parse(found->second, found->first), config);
}

language::PlanOptions plan_options(Fields& fields, const Checkpoint& checkpoint, const Target& target) {
  language::PlanOptions out;
  const std::optional<DType> weights = weights_of(fields);
  out.weights = weights ? *weights : models::usual_weights(checkpoint);
  out.cache = cache_of(fields);
  out.context = fields.count("context", 0);
  out.chunk = fields.count("chunk", 0);
  out.sequences = fields.count("sequences", 0);
  out.block = fields.count("block", 0);
  out.cache_tokens = fields.integer("cache_tokens", 0, 0);
  const auto choice = [&](const char* key) {
    const bool chosen = fields.flag(key, false);
    return fields.has(key) ? std::optional(chosen) : std::nullopt;
  };
  out.pipelined = choice("pipelined");
  out.device_sampling = choice("device_sampling");
  out.deterministic = fields.flag("deterministic", false);
  out.is_gpu = !target.software;
  const bool mixes = out.weights == DType::f16 && out.is_gpu && target.subgroup_matrices == SubgroupMatrices::native;
  out.precision = mixes ? Precision::mixed_f16 : Precision::full;
  return out;
}

json statistics_json(const serving::SequenceStatistics& statistics) {
  const double end = statistics.finished.value_or(statistics.arrived), first = statistics.first_token.value_or(end);
  return {{"prompt_tokens", statistics.prompt_tokens},
          {"tokens", statistics.tokens},
          {"reused", statistics.reused},
          {"drafted", statistics.drafted},
          {"accepted", statistics.accepted},
          {"prompt_seconds", first - statistics.arrived},
          {"token_seconds", end - first}};
}

// Leaves out banned tokens, whose values differ between host and device.
json logprobs_json(const TokenLogprobs& logprobs) {
  json likeliest = json::array();
  for (const auto& [token, logprob] : logprobs.likeliest)
    if (logprob > serving::banned_bias / 2) likeliest.push_back({token, logprob});
  return {{"drawn", logprobs.drawn}, {"likeliest", std::move(likeliest)}};
}

json events_json(const std::vector<serving::Event>& events) {
  json list = json::array();
  for (const serving::Event& event : events) {
    json row{{"id", event.id}, {"text", event.text}};
    if (event.token) row["token"] = *event.token;
    if (event.logprobs) row["logprobs"] = logprobs_json(*event.logprobs);
    if (event.finished) {
      row["finished"] = serving::name(*event.finished);
      row["statistics"] = statistics_json(event.statistics);
    }
    if (!event.error.empty()) row["error"] = event.error;
    list.push_back(std::move(row));
  }
  return list;
}

HostTensor result_of(const std::string& name, std::string_view bytes) {
  constexpr std::size_t size = 4;  // of i32 and f32
  if (bytes.size() % size != 0) throw UsageError(fmt::format("{}: {} bytes are not whole values", name, bytes.size()));
  HostTensor tensor(language::result_type(name), {static_cast<std::int64_t>(bytes.size() / size)});
  if (!bytes.empty()) std::memcpy(tensor.bytes().data(), bytes.data(), bytes.size());
  return tensor;
}

// The parameter with the given number of rows.
TensorInfo with_rows(TensorInfo param, std::int64_t rows) {
  if (rows > 0) param.type.shape.at(0) = rows;
  return param;
}

}  // namespace

LanguageParts read_language(const Bundle& request) {
  Fields fields(request.value, "the model");
  Checkpoint checkpoint;
  const Files files = files_of(request, fields, checkpoint);
  models::Config config = config_of(files);
  const models::Family& family = models::family_of(config);  // throws if the family is unknown
  const Target target = target_of(fields.value("device"));
  const language::PlanOptions options = plan_options(fields, checkpoint, target);
  fields.finish();
  models::check_layers(checkpoint, config, family);
  detail::GenerationConfig generation = generation_of(files, config);
  return {std::move(config),  std::move(checkpoint), target, options, tokenizer_of(files),
          template_of(files), std::move(generation)};
}

}  // namespace jerboa::c_api

using namespace jerboa;
using namespace jerboa::c_api;
using nlohmann::json;

jerboa_language::jerboa_language(LanguageParts parts)
    : parts_(std::move(parts)), plan_(parts_.config, parts_.options), scheduler_(plan_.scheduling()) {
  models::check_params(parts_.checkpoint, plan_.outline(), models::family_of(parts_.config));
  for (const language::Entry& entry : plan_.usual_entries(parts_.generation.sampling)) remember(entry);
}

json jerboa_language::describe() const {
  json parameters = json::array();
  for (const models::ParamReads& reads :
       models::param_reads(parts_.checkpoint, plan_.outline(), models::family_of(parts_.config))) {
    json tensors = json::array();
    for (const std::string& name : reads.tensors) {
      const Checkpoint::Place& place = parts_.checkpoint.place(name);
      tensors.push_back({{"name", name},
                         {"file", place.file},
                         {"begin", place.begin},
                         {"bytes", parts_.checkpoint.entry(name).bytes}});
    }
    parameters.push_back({{"name", reads.param}, {"tensors", std::move(tensors)}, {"rows", reads.rows}});
  }
  std::int64_t largest = 0;
  for (const TensorInfo& tensor : plan_.outline().tensors)
    if (tensor.storage == Storage::param || tensor.storage == Storage::state)
      largest = std::max(largest, element_count(tensor.type.shape).value() * bits(tensor.type.dtype) / 8);
  json entries = json::array();
  for (const language::Entry& entry : plan_.usual_entries(parts_.generation.sampling)) entries.push_back(entry.name);
  const auto type = plan_.weights();
  return {{"version", JERBOA_VERSION},
          {"model_type", parts_.config.text("model_type")},
          {"weights", is_float(type) ? name(type) : models::quantised_name(type)},
          {"parameters", plan_.parameters()},
          {"weight_bytes", plan_.weight_bytes()},
          {"cache_bytes", plan_.cache().bytes},
          {"largest_bytes", largest},
          {"largest_allowed", parts_.target.max_buffer_bytes},
          {"context", plan_.context()},
          {"vocabulary", plan_.vocabulary_size()},
          {"software", parts_.target.software},
          {"has_chat_template", parts_.chat_template.has_value()},
          {"entries", std::move(entries)},
          {"reads", std::move(parameters)}};
}

std::string jerboa_language::program(const std::string& entry) const {
  const auto found = entries_.find(entry);
  if (found == entries_.end()) throw UsageError(fmt::format("the model has no entry {}", in_quotes(entry)));
  return encode_program(compile_program({{entry, found->second()}}, parts_.target));
}

std::string jerboa_language::parameter(const Bundle& request) const {
  Fields fields(request.value, "the parameter");
  const std::string wanted = fields.text("name", "");
  const std::int64_t rows = fields.integer("rows", 0, 0);
  const std::vector<std::string> names = texts_of(fields.value("tensors"), "tensors");
  fields.finish();
  if (names.size() != request.parts.size()) throw UsageError("tensors must name one tensor for each part");
  const auto& tensors = plan_.outline().tensors;
  const auto param = std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) {
    return tensor.storage == Storage::param && tensor.name == wanted;
  });
  if (param == tensors.end()) throw UsageError(fmt::format("the model has no parameter {}", in_quotes(wanted)));
  std::map<std::string, std::string_view> bytes;
  for (std::size_t i = 0; i < names.size(); ++i) bytes.emplace(names[i], request.parts[i]);
  BundleWriter out;
  json list = json::array();
  models::read_param(parts_.checkpoint.holding(bytes, rows), with_rows(*param, rows), models::family_of(parts_.config),
                     [&](const models::ParamValues& values) {
                       out.add(values.bytes);
                       list.push_back({{"name", values.name}, {"dtype", name(values.dtype)}, {"shape", values.shape}});
                     });
  return std::move(out).finish(std::move(list));
}

std::shared_ptr<const Vocabulary> jerboa_language::vocabulary() const {
  if (!vocabulary_)
    vocabulary_ = std::make_shared<const Vocabulary>(
        jerboa::detail::token_bytes(parts_.tokenizer, plan_.vocabulary_size()), parts_.generation.end_tokens);
  return vocabulary_;
}

std::vector<std::int32_t> jerboa_language::prompt_of(Fields& request) const {
  const json &messages = request.value("messages"), &tokens = request.value("tokens"), &text = request.value("prompt");
  const json &tools = request.value("tools"), &variables = request.value("variables");
  if (!tokens.is_null()) return tokens_of(tokens, "tokens");
  if (!messages.is_null()) {
    if (!parts_.chat_template)
      throw UsageError("the model has no chat template, so it does not support chat; use generate to continue a text");
    ChatTemplateOptions options;
    if (!tools.is_null()) options.tools = JsonValue::parse(tools.dump(), "tools");
    if (!variables.is_null()) options.variables = JsonValue::parse(variables.dump(), "variables");
    const std::string rendered = parts_.chat_template->render(JsonValue::parse(messages.dump(), "messages"), options);
    // The template writes the special tokens itself.
    return language::encode_prompt(parts_.tokenizer, rendered, plan_.context(), {.add_special = false});
  }
  if (!text.is_string()) throw UsageError("a request needs a prompt, messages or tokens");
  std::vector<std::int32_t> prompt =
      language::encode_prompt(parts_.tokenizer, text.get<std::string>(), plan_.context());
  if (prompt.empty())
    throw UsageError("the prompt is empty, and the tokenizer has no beginning-of-text token; provide some text");
  return prompt;
}

json jerboa_language::submit(Fields request, double now) {
  std::vector<std::int32_t> prompt = prompt_of(request);
  language::TextRequest wanted;
  wanted.max_tokens = request.count("max_tokens", wanted.max_tokens, 1);
  if (request.has("sampling")) wanted.sampling = sampling_of(request.value("sampling"), parts_.generation.sampling);
  request.value("sampling");
  wanted.stop = texts_of(request.value("stop"), "stop");
  wanted.grammar = grammar_of(request);
  if (const double seconds = request.number("seconds", 0); request.has("seconds")) wanted.seconds = seconds;
  wanted.drafts = request.count("drafts", 0);
  const int logprobs = request.count("logprobs", 0);
  const bool wants_logprobs = request.has("logprobs");
  request.finish();
  const std::size_t count = prompt.size();
  const language::TextModel model{.tokenizer = parts_.tokenizer,
                                  .end_tokens = parts_.generation.end_tokens,
                                  .recommended_sampling = parts_.generation.sampling,
                                  .samples_on_device = plan_.samples_on_device(),
                                  .is_deterministic = plan_.is_deterministic(),
                                  .vocabulary = [this] { return vocabulary(); }};
  serving::SequenceOptions options = language::sequence_options(model, wanted, now);
  if (wants_logprobs) options.logprobs = logprobs;
  const serving::SequenceId id = scheduler_.add(std::move(prompt), std::move(options), now);
  return {{"id", id}, {"prompt_tokens", count}};
}

std::string jerboa_language::next(double now) {
  std::optional<serving::Step> step = scheduler_.next(now);
  if (!step) return {};
  BundleWriter out;
  json runs = json::array();
  for (const language::Run& run : plan_.runs_of(*step)) {
    remember(run.entry);
    json inputs = json::array();
    for (const auto& [name, tensor] : run.inputs) {
      out.add(tensor.bytes());
      inputs.push_back({{"name", name}, {"dtype", jerboa::name(tensor.dtype())}, {"shape", tensor.shape()}});
    }
    runs.push_back({{"entry", run.entry.name}, {"inputs", std::move(inputs)}, {"reads", run.reads}});
  }
  json value{{"step", step->number}, {"runs", std::move(runs)}};
  in_flight_.push_back(std::move(*step));
  return std::move(out).finish(std::move(value));
}

const serving::Step& jerboa_language::oldest(std::int64_t number) const {
  if (in_flight_.empty() || in_flight_.front().number != number)
    throw UsageError(fmt::format("step {} is not the oldest in flight", number));
  return in_flight_.front();
}

json jerboa_language::complete(std::int64_t number, const Bundle& results, double now) {
  const serving::Step& step = oldest(number);
  const std::vector<std::string> names = texts_of(results.value, "the results");
  if (names.size() != results.parts.size()) throw UsageError("the results must name one output for each part");
  std::map<std::string, HostTensor> outputs;
  for (std::size_t i = 0; i < names.size(); ++i) outputs.emplace(names[i], result_of(names[i], results.parts[i]));
  const auto events = scheduler_.complete(step, language::results_of(step, outputs), now);
  in_flight_.pop_front();
  return events_json(events);
}

json jerboa_language::fail(std::int64_t number, const std::string& error, bool out_of_memory, double now) {
  const serving::Step& step = oldest(number);
  const auto events = out_of_memory ? scheduler_.refuse(step, error, now) : scheduler_.fail(step, error, now);
  in_flight_.pop_front();
  return events_json(events);
}

json jerboa_language::cancel(std::int64_t id, double now) {
  scheduler_.cancel(id, now);
  return events_json(scheduler_.take_events());
}
