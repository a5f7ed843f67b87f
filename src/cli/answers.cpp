#include "cli/answers.h"

#include <algorithm>

#include <jerboa/base/error.h>
#include <jerboa/language/model.h>
#include <jerboa/language/runner.h>

#include "base/json_value.h"
#include "cli/interrupt.h"
#include "cli/language_options.h"

namespace jerboa::cli {
namespace {

constexpr double slice_of_seconds = 0.02;  // between looks at whether Ctrl-C was pressed

}  // namespace

std::vector<std::int32_t> prompt_tokens(LanguageModel& model, const std::string& text, const JsonValue& tools) {
  if (tools.is_null()) return model.encode_prompt(text);
  if (!model.has_chat_template()) throw UsageError("--tools are for the model's chat template, but it has none");
  const std::string rendered = model.model().chat_template()->render({{"user", text}}, {.tools = tools});
  return model.encode_prompt(rendered, {.add_special = false});
}

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

nlohmann::ordered_json answer_json(LanguageModel& model, const std::vector<std::int32_t>& prompt,
                                   const Generation& answer, const AnswerDetails& details) {
  nlohmann::ordered_json json;
  if (details.index) json["index"] = *details.index;
  json["text"] = answer.text;
  json["tokens"] = answer.tokens;
  json["stopped_by"] = name(answer.reason);
  json["prompt_tokens"] = answer.prompt_tokens;
  json["reused_tokens"] = answer.reused;
  json["prompt_seconds"] = answer.prompt_seconds;
  json["token_seconds"] = answer.token_seconds;
  json["tokens_per_second"] = token_rate(answer);
  if (details.log_probabilities) json["logprobs"] = model.score(prompt, answer.tokens);
  return json;
}

}  // namespace jerboa::cli
