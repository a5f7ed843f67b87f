#include "server/chat_prompt.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/json_value.h"
#include "base/parse_json.h"
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

// Rewrites calls into the form that the system message asks for, and results into replies of the user.
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
    prompt.grammar = call.grammar;
    prompt.chooses_tool = call.chooses_tool;
  } else if (request.schema && has_channels) {
    prompt.opening = "<|channel|>final<|message|>";
  }
  if ((prompt.grammar || request.schema) && prompt.is_in_thoughts) {
    prompt.text += "\n</think>\n\n";  // the template leaves the thoughts open
    prompt.is_in_thoughts = false;
  }
  prompt.shows_marks = format.tools->has_special_marks && (has_channels || !request.tools.empty());
  prompt.text += prompt.opening;
  return prompt;
}

ForcedCall choose_tool(const ChatFormat& format, const ChatRequest& request, const std::string& chosen) {
  const auto force = [&](const std::vector<Tool>& tools) {
    return force_call(*format.tools, tools, request.parallel_calls, format.names_follow_marks);
  };
  const std::string name = chosen.substr(0, chosen.find(' '));
  const auto tool =
      std::find_if(request.tools.begin(), request.tools.end(), [&](const Tool& one) { return one.name == name; });
  if (tool == request.tools.end())
    throw Error(fmt::format("the model called {}, which is not a tool", in_quotes(name)));
  ForcedCall call = force({*tool});
  call.opening.erase(0, force(request.tools).opening.size() + chosen.size());
  return call;
}

std::vector<std::int32_t> go_on_after(const Generation& chosen, const ForcedCall& call, const Tokenizer& tokenizer,
                                      std::vector<std::int32_t>& prompt, GenerateOptions& options) {
  std::vector<std::int32_t> head = tokenizer.encode(call.opening, {.add_special = false}).ids;
  prompt.insert(prompt.end(), chosen.tokens.begin(), chosen.tokens.end());
  prompt.insert(prompt.end(), head.begin(), head.end());
  options.max_tokens = std::max(options.max_tokens - static_cast<int>(chosen.tokens.size()), 1);
  options.grammar = call.grammar;
  return head;
}

}  // namespace jerboa::server
