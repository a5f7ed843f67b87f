#include <optional>

#include "server/reply.h"

namespace jerboa::server {
namespace {

using Kind = OutputEvent::Kind;

// Writes the answer as a list of items: thoughts, a message, calls. As events, each item is added, grows and is
// completed.
class ResponsesReply final : public Reply {
 public:
  ResponsesReply(std::shared_ptr<Exchange> exchange, const ChatRequest& request)
      : Reply(std::move(exchange), request.stream), request_(request) {}

  void add(int, const OutputEvents& events, const std::vector<TokenLogprob>&) override {
    for (const OutputEvent& event : events) {
      const bool is_new = !is_open_ || event.kind == Kind::call || !continues(items_.back(), event.kind);
      if (is_new) open_item(event);
      if (event.kind != Kind::call) grow_item(event.text);
    }
  }

  /// Adds an item like those of OpenAI's own tools.
  void add_server_call(const ServerCall& call) override {
    close_item();
    Item item{.kind = Kind::call,
              .id = make_id("mcp_"),
              .call_id = {},
              .name = call.name,
              .text = call.arguments,
              .output = call.output};
    items_.push_back(std::move(item));
    for (const char* type : {"response.output_item.added", "response.output_item.done"})
      event(type, {{"output_index", items_.size() - 1}, {"item", item_json(items_.back(), "completed")}});
  }

  void end(int, StopReason reason) override {
    close_item();
    is_complete_ = reason == StopReason::end || reason == StopReason::stop;
  }

  void finish(const Usage& usage) override {
    Json out = response(is_complete_ ? "completed" : "incomplete");
    if (!is_complete_) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
    out["usage"] = {{"input_tokens", usage.prompt_tokens},
                    {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
                    {"output_tokens", usage.completion_tokens},
                    {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
                    {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
    if (!streams()) return exchange().respond({.body = dump(out)});
    event(is_complete_ ? "response.completed" : "response.incomplete", {{"response", out}});
    exchange().finish();
  }

  void fail(const ApiError& error) override {
    if (!has_begun_stream_) return Reply::fail(error);
    event("error", {{"code", "server_error"}, {"message", error.what()}, {"param", nullptr}});
    exchange().finish();
  }

 private:
  struct Item {
    Kind kind;  // content, reasoning or call
    std::string id, call_id, name, text;
    std::optional<ToolOutput> output = {};  // if the server called the tool
  };

  static bool continues(const Item& item, Kind kind) {
    return kind == Kind::arguments ? item.kind == Kind::call : item.kind == kind;
  }

  void begin_stream() override {
    has_begun_stream_ = true;
    event("response.created", {{"response", response("in_progress")}});
    event("response.in_progress", {{"response", response("in_progress")}});
  }

  void event(const char* type, const Json& data) {
    if (!streams()) return;
    Json out = {{"type", type}, {"sequence_number", number_++}};
    out.update(data);
    exchange().write(std::string("event: ") + type + "\ndata: " + dump(out) + "\n\n");
  }

  Json place() const { return {{"output_index", items_.size() - 1}, {"item_id", items_.back().id}}; }
  Json part_place() const {
    Json out = place();
    out["content_index"] = 0;
    return out;
  }
  void part_event(const char* type, const char* key, const Json& value) {
    Json data = part_place();
    data[key] = value;
    event(type, std::move(data));
  }

  static Json text_part(const std::string& text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}};
  }
  static Json thought_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

  static Json item_json(const Item& item, const char* status) {
    if (item.output)
      return {{"type", "mcp_call"},
              {"id", item.id},
              {"server_label", "jerboa"},
              {"name", item.name},
              {"arguments", item.text},
              {"output", item.output->is_error ? Json() : Json(item.output->text)},
              {"error", item.output->is_error ? Json(item.output->text) : Json()},
              {"status", status}};
    if (item.kind == Kind::call)
      return {{"type", "function_call"}, {"id", item.id},          {"call_id", item.call_id},
              {"name", item.name},       {"arguments", item.text}, {"status", status}};
    Json content = Json::array();
    const bool is_text = item.kind == Kind::content;
    if (!item.text.empty()) content.push_back(is_text ? text_part(item.text) : thought_part(item.text));
    if (!is_text) return {{"type", "reasoning"}, {"id", item.id}, {"summary", Json::array()}, {"content", content}};
    return {{"type", "message"}, {"id", item.id}, {"status", status}, {"role", "assistant"}, {"content", content}};
  }

  void open_item(const OutputEvent& first) {
    close_item();
    Item item{.kind = first.kind, .id = {}, .call_id = {}, .name = {}, .text = {}, .output = {}};
    item.id = make_id(first.kind == Kind::call ? "fc_" : first.kind == Kind::content ? "msg_" : "rs_");
    if (first.kind == Kind::call) {
      item.call_id = make_id("call_");
      item.name = first.text;
    }
    items_.push_back(std::move(item));
    is_open_ = true;
    event("response.output_item.added",
          {{"output_index", items_.size() - 1}, {"item", item_json(items_.back(), "in_progress")}});
    if (first.kind == Kind::content) part_event("response.content_part.added", "part", text_part(""));
  }

  void grow_item(const std::string& text) {
    Item& item = items_.back();
    item.text += text;
    if (item.kind == Kind::call) {
      Json data = place();
      data["delta"] = text;
      event("response.function_call_arguments.delta", std::move(data));
    } else {
      part_event(item.kind == Kind::content ? "response.output_text.delta" : "response.reasoning_text.delta", "delta",
                 text);
    }
  }

  void close_item() {
    if (!is_open_) return;
    is_open_ = false;
    const Item& item = items_.back();
    if (item.kind == Kind::call) {
      Json data = place();
      data["arguments"] = item.text;
      event("response.function_call_arguments.done", std::move(data));
    } else if (item.kind == Kind::content) {
      part_event("response.output_text.done", "text", item.text);
      part_event("response.content_part.done", "part", text_part(item.text));
    } else {
      part_event("response.reasoning_text.done", "text", item.text);
    }
    event("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item_json(item, "completed")}});
  }

  Json response(const char* status) const {
    Json output = Json::array();
    for (const Item& item : items_) output.push_back(item_json(item, "completed"));
    Json tools = Json::array();
    for (const Tool& tool : request_.tools)
      tools.push_back({{"type", "function"}, {"name", tool.name}, {"parameters", tool.parameters}, {"strict", false}});
    return {{"id", id_},
            {"object", "response"},
            {"created_at", created()},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"instructions", nullptr},
            {"max_output_tokens", request_.max_tokens ? Json(*request_.max_tokens) : Json()},
            {"model", model()},
            {"output", output},
            {"parallel_tool_calls", request_.parallel_calls},
            {"temperature", request_.temperature ? Json(*request_.temperature) : Json()},
            {"tool_choice", request_.tool_choice == ToolChoice::required    ? "required"
                            : request_.tool_choice == ToolChoice::automatic ? "auto"
                                                                            : "none"},
            {"tools", tools},
            {"top_p", request_.top_p ? Json(*request_.top_p) : Json()},
            {"usage", nullptr},
            {"metadata", Json::object()}};
  }

  ChatRequest request_;
  std::string id_ = make_id("resp_");
  std::vector<Item> items_;
  bool is_open_ = false, is_complete_ = true, has_begun_stream_ = false;
  int number_ = 0;
};

}  // namespace

std::unique_ptr<Reply> make_responses_reply(std::shared_ptr<Exchange> exchange, const ChatRequest& request) {
  return std::make_unique<ResponsesReply>(std::move(exchange), request);
}

}  // namespace jerboa::server
