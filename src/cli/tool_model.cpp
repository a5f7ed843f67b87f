#include "cli/tool_model.h"

#include <fmt/format.h>
#include <optional>

#include <jerboa/language/model.h>

#include "base/json_value.h"
#include "server/marked_text.h"
#include "server/output_parser.h"

namespace jerboa::cli {
namespace {

using mcp::Json;
using server::OutputEvent;

constexpr double slice_seconds = 0.02;  // between looks at whether the answer was cancelled

// Collects an answer, and passes on what a reader wants to see of it.
class AnswerCollector {
 public:
  AnswerCollector(ToolAnswer& answer, const OnText& on_text) : answer_(answer), on_text_(on_text) {}

  void take(const server::OutputEvents& events) {
    for (const OutputEvent& event : events) switch (event.kind) {
        case OutputEvent::Kind::reasoning: show(event.text, true); break;
        case OutputEvent::Kind::content:
          answer_.text += event.text;
          show(event.text, false);
          break;
        case OutputEvent::Kind::call: answer_.calls.push_back({event.text, ""}); break;
        case OutputEvent::Kind::arguments: answer_.calls.back().arguments += event.text; break;
      }
  }

 private:
  void show(const std::string& text, bool is_thought) {
    if (!on_text_) return;
    if (is_thought != is_in_thoughts_) on_text_(is_thought ? "<think>\n" : "\n</think>\n\n");
    is_in_thoughts_ = is_thought;
    on_text_(text);
  }

  ToolAnswer& answer_;
  const OnText& on_text_;
  bool is_in_thoughts_ = false;
};

Json tool_choice(Calls calls, const std::string& required_tool) {
  if (calls == Calls::forbidden) return "none";
  if (calls == Calls::allowed) return "auto";
  if (required_tool.empty()) return "required";
  return {{"type", "function"}, {"function", {{"name", required_tool}}}};
}

}  // namespace

ToolModel::ToolModel(LanguageModel& model, const std::vector<mcp::Tool>& tools) : model_(model) {
  if (!model.has_chat_template()) throw UsageError("tools are for the model's chat template, but it has none");
  format_ = server::chat_format_of(model.model().chat_template()->source());
  for (const mcp::Tool& tool : tools)
    tools_json_.push_back(
        {{"type", "function"},
         {"function", {{"name", tool.name}, {"description", tool.description}, {"parameters", tool.parameters}}}});
}

server::ChatPrompt ToolModel::prompt_of(const Json& messages, Calls calls, const std::string& required_tool,
                                        const JsonValue& variables) const {
  Json body{{"messages", messages}};
  if (!tools_json_.empty()) {
    body["tools"] = tools_json_;
    body["tool_choice"] = tool_choice(calls, required_tool);
  }
  if (!variables.is_null()) body["chat_template_kwargs"] = json_value(variables);
  server::ChatRequest request =
      server::parse_chat_request(body, {.tools = static_cast<int>(std::max<std::size_t>(tools_json_.size(), 1))});
  // What the model was told stays the same when it must answer, so that the cache of it is used again.
  if (calls == Calls::forbidden && !tools_json_.empty()) request.tools_json = tools_json_;
  return server::make_chat_prompt(*model_.model().chat_template(), format_, request);
}

std::vector<std::int32_t> ToolModel::tokens(const Json& messages, const JsonValue& variables) const {
  return model_.encode_prompt(prompt_of(messages, Calls::allowed, "", variables).text, {.add_special = false});
}

std::string ToolModel::shortened_to(const std::string& text, std::int64_t tokens) const {
  Tokenizer tokenizer = model_.tokenizer();
  tokenizer.set_truncation({});
  tokenizer.set_padding({});
  std::vector<std::int32_t> ids = tokenizer.encode(text, {.add_special = false}).ids;
  if (std::ssize(ids) <= tokens) return text;
  const std::size_t before = ids.size();
  ids.resize(static_cast<std::size_t>(tokens));
  return tokenizer.decode(ids) + fmt::format("\n[cut after {} of {} tokens]", tokens, before);
}

ToolAnswer ToolModel::ask(const Question& question) {
  const server::ChatPrompt prompt =
      prompt_of(question.messages, question.calls, question.required_tool, question.variables);
  const std::vector<std::int32_t> tokens = model_.encode_prompt(prompt.text, {.add_special = false});
  GenerateOptions options = question.options;
  if (prompt.grammar) options.grammar = prompt.grammar;
  const bool has_tools = question.calls != Calls::forbidden && !tools_json_.empty();
  const auto parser =
      server::make_output_parser(*format_.tools, {.has_tools = has_tools, .is_in_thoughts = prompt.is_in_thoughts});
  std::optional<server::MarkedText> marked;
  if (prompt.shows_marks) marked.emplace(model_.tokenizer(), tokens, options.stop);

  ToolAnswer answer;
  AnswerCollector collector(answer, question.on_text);
  if (!prompt.opening.empty()) collector.take(parser->feed(prompt.opening));
  language::Stream stream = model_.submit(tokens, options);
  for (bool is_over = false; !is_over;) {
    is_over = stream.ended();
    if (question.is_cancelled()) stream.cancel();
    while (const auto piece = stream.take()) {
      if (!marked)
        collector.take(parser->feed(piece->text));
      else if (piece->token)
        collector.take(parser->feed(marked->push(*piece->token)));
    }
    if (!is_over) model_.poll(slice_seconds);
  }
  if (marked) collector.take(parser->feed(marked->finish()));
  collector.take(parser->finish());
  answer.generation = stream.result();
  if (answer.generation.reason == StopReason::failed) throw Error(answer.generation.error);
  // A call that is not complete is not made.
  if (answer.generation.reason != StopReason::end && answer.generation.reason != StopReason::stop &&
      !answer.calls.empty() && !nlohmann::json::accept(answer.calls.back().arguments))
    answer.calls.pop_back();
  return answer;
}

}  // namespace jerboa::cli
