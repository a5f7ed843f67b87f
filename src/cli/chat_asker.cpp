#include "cli/chat_asker.h"

#include <algorithm>
#include <fmt/format.h>
#include <memory>
#include <optional>

#include <jerboa/language/model.h>

#include "base/json_value.h"
#include "cli/arguments.h"
#include "server/api_error.h"
#include "server/marked_text.h"
#include "server/output_parser.h"
#include "server/result_room.h"

namespace jerboa::cli {
namespace {

using mcp::Json;
using server::OutputEvent;

constexpr double slice_seconds = 0.02;  // how often cancellation is checked

Json tool_choice(Calls calls, const std::string& required_tool) {
  if (calls == Calls::forbidden) return "none";
  if (calls == Calls::allowed) return "auto";
  if (required_tool.empty()) return "required";
  return {{"type", "function"}, {"function", {{"name", required_tool}}}};
}

}  // namespace

// Parses an answer as it is generated.
class ChatAsker::Reader {
 public:
  Reader(const ChatAsker& model, const Prepared& question, const OnShown& on_text)
      : on_text_(on_text),
        parser_(server::make_output_parser(*model.format_.tools, {.has_tools = question.has_tools,
                                                                  .is_in_thoughts = question.prompt.is_in_thoughts,
                                                                  .tools = question.request.tools})) {
    if (question.prompt.shows_marks) marked_.emplace(model.model_.tokenizer(), question.tokens, question.options.stop);
    take(parser_->feed(question.prompt.opening));
  }

  void push(const TextPiece& piece) {
    if (!marked_)
      take(parser_->feed(piece.text));
    else if (piece.token)
      take(parser_->feed(marked_->push(*piece.token)));
  }

  // Adds tokens that the model did not generate itself.
  void push(const std::string& text, const std::vector<std::int32_t>& tokens) {
    if (!marked_) return push({.text = text});
    for (const std::int32_t token : tokens) push({.token = token});
  }

  ChatAnswer finish(Generation generation) {
    if (marked_) take(parser_->feed(marked_->finish()));
    take(parser_->finish());
    answer_.generation = std::move(generation);
    const StopReason reason = answer_.generation.reason;
    // Incomplete calls are not made.
    if (reason != StopReason::end && reason != StopReason::stop && !answer_.calls.empty() &&
        !nlohmann::json::accept(answer_.calls.back().arguments))
      answer_.calls.pop_back();
    return std::move(answer_);
  }

 private:
  void take(const server::OutputEvents& events) {
    for (const OutputEvent& event : events) switch (event.kind) {
        case OutputEvent::Kind::reasoning:
          answer_.thoughts += event.text;
          if (on_text_) on_text_(event.text, true);
          break;
        case OutputEvent::Kind::content:
          answer_.text += event.text;
          if (on_text_) on_text_(event.text, false);
          break;
        case OutputEvent::Kind::call: answer_.calls.push_back({event.text, ""}); break;
        case OutputEvent::Kind::arguments:
          if (!answer_.calls.empty()) answer_.calls.back().arguments += event.text;
          break;
      }
  }

  ChatAnswer answer_;
  const OnShown& on_text_;
  std::unique_ptr<server::OutputParser> parser_;
  std::optional<server::MarkedText> marked_;
};

void check_described(const mcp::Json& tools, const std::string& flag) {
  const Json body{{"messages", {{{"role", "user"}, {"content", ""}}}}, {"tools", tools}};
  try {
    server::parse_chat_request(body, {.tools = static_cast<int>(std::max<std::size_t>(tools.size(), 1))});
  } catch (const server::ApiError& error) {
    throw BadArguments(fmt::format("{}: {}", flag, error.what()));
  }
}

ChatAsker::ChatAsker(LanguageModel& model, mcp::Json tools) : model_(model), tools_json_(std::move(tools)) {
  if (!model.has_chat_template()) throw UsageError("the model has no chat template, so it cannot answer messages");
  format_ = server::chat_format_of(template_source());
}

const std::string& ChatAsker::template_source() const { return model_.model().chat_template()->source(); }

server::ChatRequest ChatAsker::request_of(const Json& messages, Calls calls, const std::string& required_tool,
                                          const JsonValue& variables, bool is_constrained) const {
  Json body{{"messages", messages}};
  if (!tools_json_.empty()) {
    body["tools"] = tools_json_;
    body["tool_choice"] = tool_choice(calls, required_tool);
  }
  if (!variables.is_null()) body["chat_template_kwargs"] = json_value(variables);
  server::ChatRequest request =
      server::parse_chat_request(body, {.tools = static_cast<int>(std::max<std::size_t>(tools_json_.size(), 1))});
  // The prompt still describes the tools when none may be called, so that its cached prefix is reused.
  if (calls == Calls::forbidden && !tools_json_.empty()) request.tools_json = tools_json_;
  if (is_constrained) request.schema.emplace();  // the grammar covers the answer alone, so thoughts are closed
  return request;
}

server::ChatPrompt ChatAsker::prompt_of(const server::ChatRequest& request) const {
  return server::make_chat_prompt(*model_.model().chat_template(), format_, request);
}

ChatAsker::Prepared ChatAsker::prepare(const Question& question) const {
  server::ChatRequest request = request_of(question.messages, question.calls, question.required_tool,
                                           question.variables, question.options.grammar != nullptr);
  Prepared prepared{.prompt = prompt_of(request),
                    .tokens = {},
                    .options = question.options,
                    .request = std::move(request),
                    .has_tools = question.calls != Calls::forbidden && !tools_json_.empty()};
  prepared.tokens = model_.encode_prompt(prepared.prompt.text, {.add_special = false});
  if (prepared.prompt.grammar) prepared.options.grammar = prepared.prompt.grammar;
  return prepared;
}

ChatAnswer ChatAsker::read(const Prepared& question, Generation generation) const {
  const OnShown nobody;
  Reader reader(*this, question, nobody);
  if (question.prompt.shows_marks)
    for (const std::int32_t token : generation.tokens) reader.push({.token = token});
  else
    reader.push({.text = generation.text});
  return reader.finish(std::move(generation));
}

std::vector<std::int32_t> ChatAsker::tokens(const Json& messages, const JsonValue& variables) const {
  return model_.encode_prompt(prompt_of(request_of(messages, Calls::allowed, "", variables, false)).text,
                              {.add_special = false});
}

bool ChatAsker::add_results(Json& messages, Json results, const JsonValue& variables, int max_tokens,
                            const std::function<Json(const Json& messages)>& read) const {
  const Tokenizer& tokenizer = model_.tokenizer();
  const auto count = [&](const Json& all) {
    const std::string text = prompt_of(request_of(read(all), Calls::allowed, "", variables, false)).text;
    return std::ssize(tokenizer.encode(text, {.add_special = false}).ids);
  };
  return server::add_results(messages, std::move(results), {tokenizer, model_.context(), max_tokens, count});
}

Generation ChatAsker::generated(const std::vector<std::int32_t>& prompt, const GenerateOptions& options,
                                const std::function<bool()>& is_cancelled,
                                const std::function<void(const TextPiece&)>& take) {
  language::Stream stream = model_.submit(prompt, options);
  for (bool is_over = false; !is_over;) {
    is_over = stream.ended();
    if (is_cancelled()) stream.cancel();
    while (const auto piece = stream.take()) take(*piece);
    if (!is_over) model_.poll(slice_seconds);
  }
  Generation result = stream.result();
  if (result.reason == StopReason::failed) throw Error(result.error);
  return result;
}

ChatAnswer ChatAsker::ask(const Question& question) {
  Prepared prepared = prepare(question);
  Reader reader(*this, prepared, question.on_text);
  const auto next = [&] {
    return generated(prepared.tokens, prepared.options, question.is_cancelled,
                     [&](const TextPiece& piece) { reader.push(piece); });
  };
  Generation generation = next();
  if (prepared.prompt.chooses_tool && generation.reason == StopReason::end) {
    const server::ForcedCall call = server::choose_tool(format_, prepared.request, generation.text);
    reader.push(call.opening,
                server::go_on_after(generation, call, model_.tokenizer(), prepared.tokens, prepared.options));
    generation = next();
  }
  return reader.finish(std::move(generation));
}

}  // namespace jerboa::cli
