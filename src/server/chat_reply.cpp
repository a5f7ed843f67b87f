#include "server/reply.h"

namespace jerboa::server {
namespace {

using Kind = OutputEvent::Kind;

Json logprob_json(const std::string& token, float logprob) {
  Json bytes = Json::array();
  for (const char c : token) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token}, {"logprob", logprob}, {"bytes", bytes}};
}

Json logprobs_json(const std::vector<TokenLogprob>& logprobs) {
  Json content = Json::array();
  for (const TokenLogprob& one : logprobs) {
    Json entry = logprob_json(one.token, one.logprob);
    entry["top_logprobs"] = Json::array();
    for (const auto& [token, logprob] : one.alternatives) entry["top_logprobs"].push_back(logprob_json(token, logprob));
    content.push_back(std::move(entry));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

class ChatReply final : public Reply {
 public:
  ChatReply(std::shared_ptr<Exchange> exchange, const ChatRequest& request)
      : Reply(std::move(exchange), request.stream),
        has_logprobs_(request.logprobs.has_value()),
        includes_usage_(request.include_usage),
        choices_(static_cast<std::size_t>(request.choices)) {}

  void add(int index, const OutputEvents& events, const std::vector<TokenLogprob>& logprobs) override {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    for (const OutputEvent& event : events) collect(choice, event);
    if (!streams()) {
      choice.logprobs.insert(choice.logprobs.end(), logprobs.begin(), logprobs.end());
      return;
    }
    for (std::size_t i = 0; i < events.size(); ++i)
      send_delta(index, delta_of(choice, events, i), i == 0 ? logprobs : std::vector<TokenLogprob>());
    if (events.empty() && !logprobs.empty()) send_delta(index, {{"content", ""}}, logprobs);
  }

  void add_server_call(const ServerCall& call) override {
    const bool is_error = call.output.is_error;
    Json json = {{"name", call.name},
                 {"arguments", call.arguments},
                 {"output", is_error ? Json() : Json(call.output.text)},
                 {"error", is_error ? Json(call.output.text) : Json()}};
    if (streams()) send_delta(0, {{"server_tool_calls", Json::array({json})}}, {});
    choices_[0].server_calls.push_back(std::move(json));
  }

  void end(int index, StopReason reason) override {
    Choice& choice = choices_[static_cast<std::size_t>(index)];
    choice.finish_reason = finish_reason(reason, !choice.calls.empty());
    if (streams()) send_chunk(index, Json::object(), choice.finish_reason, {});
  }

  void finish(const Usage& usage) override {
    if (streams()) {
      if (includes_usage_) {
        Json chunk = head("chat.completion.chunk");
        chunk["choices"] = Json::array();
        chunk["usage"] = usage_json(usage);
        send_event(chunk);
      }
      exchange().write("data: [DONE]\n\n");
      return exchange().finish();
    }
    Json out = head("chat.completion");
    out["choices"] = Json::array();
    for (std::size_t i = 0; i < choices_.size(); ++i) out["choices"].push_back(choice_json(i));
    out["usage"] = usage_json(usage);
    exchange().respond({.body = dump(out)});
  }

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    std::string content, reasoning;
    std::vector<Call> calls;
    std::vector<Json> server_calls;
    std::vector<TokenLogprob> logprobs;
    std::string finish_reason;
  };

  Json head(const char* object) const {
    return {
        {"id", id_}, {"object", object}, {"created", created()}, {"model", model()}, {"system_fingerprint", nullptr}};
  }

  void begin_stream() override {
    for (std::size_t i = 0; i < choices_.size(); ++i)
      send_chunk(static_cast<int>(i), {{"role", "assistant"}, {"content", ""}}, {}, {});
  }

  static void collect(Choice& choice, const OutputEvent& event) {
    switch (event.kind) {
      case Kind::content: choice.content += event.text; break;
      case Kind::reasoning: choice.reasoning += event.text; break;
      case Kind::call: choice.calls.push_back({make_id("call_"), event.text, ""}); break;
      case Kind::arguments:
        if (!choice.calls.empty()) choice.calls.back().arguments += event.text;
        break;
    }
  }

  // The index of the call that event `i` belongs to. All events were collected, so it is counted from the end.
  static std::size_t call_index(const Choice& choice, const OutputEvents& events, std::size_t i) {
    std::size_t later = 0;
    for (std::size_t j = i + 1; j < events.size(); ++j) later += events[j].kind == Kind::call ? 1 : 0;
    return choice.calls.size() - 1 - later;
  }

  static Json delta_of(const Choice& choice, const OutputEvents& events, std::size_t i) {
    const OutputEvent& event = events[i];
    if (event.kind == Kind::content) return {{"content", event.text}};
    if (event.kind == Kind::reasoning) return {{"reasoning_content", event.text}};
    const std::size_t index = call_index(choice, events, i);
    Json call = {{"index", index}};
    if (event.kind == Kind::call) {
      call["id"] = choice.calls[index].id;
      call["type"] = "function";
      call["function"] = {{"name", event.text}, {"arguments", ""}};
    } else {
      call["function"] = {{"arguments", event.text}};
    }
    return {{"tool_calls", Json::array({call})}};
  }

  void send_delta(int index, const Json& delta, const std::vector<TokenLogprob>& logprobs) {
    send_chunk(index, delta, {}, logprobs);
  }

  void send_chunk(int index, const Json& delta, const std::string& reason, const std::vector<TokenLogprob>& logprobs) {
    Json choice = {{"index", index},
                   {"delta", delta},
                   {"logprobs", has_logprobs_ && !logprobs.empty() ? logprobs_json(logprobs) : Json()},
                   {"finish_reason", reason.empty() ? Json() : Json(reason)}};
    Json chunk = head("chat.completion.chunk");
    chunk["choices"] = Json::array({std::move(choice)});
    if (includes_usage_) chunk["usage"] = nullptr;
    send_event(chunk);
  }

  Json choice_json(std::size_t index) const {
    const Choice& choice = choices_[index];
    Json message = {{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
    if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
    if (!choice.server_calls.empty()) message["server_tool_calls"] = choice.server_calls;
    if (!choice.calls.empty()) {
      if (choice.content.empty()) message["content"] = nullptr;
      message["tool_calls"] = Json::array();
      for (const Call& call : choice.calls)
        message["tool_calls"].push_back({{"id", call.id},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return {{"index", index},
            {"message", message},
            {"logprobs", has_logprobs_ ? logprobs_json(choice.logprobs) : Json()},
            {"finish_reason", choice.finish_reason}};
  }

  bool has_logprobs_, includes_usage_;
  std::vector<Choice> choices_;
  std::string id_ = make_id("chatcmpl-");
};

}  // namespace

std::unique_ptr<Reply> make_chat_reply(std::shared_ptr<Exchange> exchange, const ChatRequest& request) {
  return std::make_unique<ChatReply>(std::move(exchange), request);
}

}  // namespace jerboa::server
