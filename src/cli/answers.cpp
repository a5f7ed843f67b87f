#include "cli/answers.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/language/runner.h>

#include "cli/interrupt.h"
#include "cli/language_options.h"

namespace jerboa::cli {
namespace {

constexpr double slice_of_seconds = 0.02;  // how often Ctrl-C is checked

// Calls in OpenAI's form.
nlohmann::ordered_json calls_json(const std::vector<WrittenCall>& calls) {
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < calls.size(); ++i)
    list.push_back({{"id", fmt::format("call_{}", i)},
                    {"type", "function"},
                    {"function", {{"name", calls[i].name}, {"arguments", calls[i].arguments}}}});
  return list;
}

}  // namespace

Answers::Answers(LanguageModel& model, const std::vector<std::int32_t>& prompt, GenerateOptions options, int count)
    : model_(model) {
  streams_.push_back(model.submit(prompt, options));
  for (int i = 1; i < count; ++i) {
    if (options.sampling) ++options.sampling->seed;
    streams_.push_back(model.runner().fork(streams_[0], options));
  }
}

void Answers::wait(const OnText& on_text) {
  for (bool is_over = false; !is_over;) {
    is_over = std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream.ended(); });
    while (const auto piece = streams_[0].take())
      if (on_text) on_text(piece->text);
    if (CatchInterrupts::is_set())
      for (language::Stream& stream : streams_) stream.cancel();
    if (!is_over) model_.poll(slice_of_seconds);
  }
  for (const language::Stream& stream : streams_)
    if (const Generation result = stream.result(); result.reason == StopReason::failed) throw Error(result.error);
}

std::vector<Generation> Answers::results() const {
  std::vector<Generation> results;
  for (const language::Stream& stream : streams_) results.push_back(stream.result());
  return results;
}

nlohmann::ordered_json answer_json(const Generation& answer, const AnswerDetails& details) {
  nlohmann::ordered_json json;
  if (details.index) json["index"] = *details.index;
  json["text"] = details.read != nullptr ? details.read->text : answer.text;
  if (details.read != nullptr && !details.read->thoughts.empty()) json["thoughts"] = details.read->thoughts;
  if (details.read != nullptr && !details.read->calls.empty()) json["tool_calls"] = calls_json(details.read->calls);
  json["tokens"] = answer.tokens;
  json["stopped_by"] = name(answer.reason);
  json["prompt_tokens"] = answer.prompt_tokens;
  json["reused_tokens"] = answer.reused;
  json["prompt_seconds"] = answer.prompt_seconds;
  json["token_seconds"] = answer.token_seconds;
  json["tokens_per_second"] = token_rate(answer);
  if (details.log_probabilities) {
    json["logprobs"] = nlohmann::ordered_json::array();
    for (const TokenLogprobs& token : answer.logprobs) json["logprobs"].push_back(token.drawn);
  }
  return json;
}

}  // namespace jerboa::cli
