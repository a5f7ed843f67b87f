#include "server/chat_prompt.h"

#include "base/json_value.h"
#include "server/output_parser.h"

namespace jerboa::server {
namespace {

void add_to_system(Json& messages, const std::string& text) {
  if (messages[0]["role"] == "system")
    messages[0]["content"] = messages[0]["content"].get<std::string>() + "\n\n" + text;
  else
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
}

std::string joined(const std::string& text, const std::string& more) {
  return text.empty() ? more : text + "\n" + more;
}

// Calls as the system message asks for them, and results as an answer to them.
Json without_tool_messages(const Json& messages) {
  Json plain = Json::array();
  bool follows_result = false;
  for (const Json& message : messages) {
    const bool is_result = message["role"] == "tool";
    Json shown = message;
    if (is_result) shown["role"] = "user";
    shown.erase("tool_calls");
    if (message.contains("tool_calls"))
      for (const Json& call : message["tool_calls"])
        shown["content"] = joined(
            shown["content"],
            "<tool_call>\n" + dump({{"name", call["function"]["name"]}, {"arguments", call["function"]["arguments"]}}) +
                "\n</tool_call>");
    if (is_result) shown["content"] = "<tool_response>\n" + shown["content"].get<std::string>() + "\n</tool_response>";
    if (is_result && follows_result)
      plain.back()["content"] = joined(plain.back()["content"], shown["content"]);
    else
      plain.push_back(std::move(shown));
    follows_result = is_result;
  }
  return plain;
}

std::string render(const ChatTemplate& chat_template, const ChatFormat& format, const ChatRequest& request) {
  ChatTemplateOptions rendering;
  Json messages = format.template_shows_tools ? request.messages : without_tool_messages(request.messages);
  if (!request.tools_json.is_null()) {
    if (format.template_shows_tools)
      rendering.tools = make_json(request.tools_json);
    else
      add_to_system(messages, describe_tools(request.tools_json));
  }
  if (!request.variables.is_null()) rendering.variables = make_json(request.variables);
  return chat_template.render(make_json(std::move(messages)), rendering);
}

}  // namespace

ChatFormat chat_format_of(std::string_view template_source) {
  ChatFormat format{.tools = &tool_format_of(template_source)};
  format.template_shows_tools = template_source.find("tools") != std::string_view::npos;
  format.names_follow_marks =
      format.tools->syntax == CallSyntax::list && template_source.find("[ARGS]") != std::string_view::npos;
  return format;
}

ChatPrompt make_chat_prompt(const ChatTemplate& chat_template, const ChatFormat& format, const ChatRequest& request) {
  ChatPrompt prompt{.text = render(chat_template, format, request)};
  prompt.is_in_thoughts = ends_in_thoughts(prompt.text);
  const bool has_channels = format.tools->syntax == CallSyntax::channels;
  if (request.tool_choice == ToolChoice::required) {
    const ForcedCall call = force_call(*format.tools, request.tools, request.parallel_calls, format.names_follow_marks);
    prompt.opening = call.opening;
    prompt.grammar = compile_json_schema(make_json(call.schema));
  } else if (request.schema && has_channels) {
    prompt.opening = "<|channel|>final<|message|>";
  }
  if ((prompt.grammar || request.schema) && prompt.is_in_thoughts) {
    prompt.text += "\n</think>\n\n";  // which the template leaves open
    prompt.is_in_thoughts = false;
  }
  prompt.shows_marks = format.tools->has_special_marks && (has_channels || !request.tools.empty());
  prompt.text += prompt.opening;
  return prompt;
}

}  // namespace jerboa::server
