#include "server/request.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>

#include "base/parse_json.h"
#include "server/api_error.h"
#include "server/request_parts.h"

namespace jerboa::server {
namespace {

constexpr int max_int = INT32_MAX;

std::optional<float> as_float(const std::optional<double>& value) {
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}
std::optional<int> as_int(const std::optional<std::int64_t>& value) {
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

void read_stop(const Fields& fields, const RequestLimits& limits, GenerationRequest& out) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const Json& text) {
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
      fields.fail("stop", "must be a string that is not empty, or a list of them");
    out.stop.push_back(text.get<std::string>());
  };
  if (!stop->is_array()) return add(*stop);
  if (stop->size() > static_cast<std::size_t>(limits.stops))
    fields.fail("stop", fmt::format("may list at most {} strings", limits.stops));
  for (const Json& text : *stop) add(text);
}

void read_logit_bias(const Fields& fields, GenerationRequest& out) {
  const auto biases = fields.object("logit_bias");
  if (!biases) return;
  for (const auto& [token, bias] : biases->json().items()) {
    const bool is_id = !token.empty() && token.size() <= 9 &&
                       std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_id) fields.fail("logit_bias", "must have token ids as its keys");
    out.logit_bias.emplace_back(std::stoi(token), static_cast<float>(biases->number(token, -100, 100).value_or(0)));
  }
}

std::vector<std::int32_t> tokens_of(const Json& list, const Fields& fields, std::string_view name) {
  std::vector<std::int32_t> out;
  for (const Json& token : list) {
    if (!token.is_number_integer() || token.get<std::int64_t>() < 0 || token.get<std::int64_t>() > max_int)
      fields.fail(name, "contains something that is not a token id");
    out.push_back(token.get<std::int32_t>());
  }
  return out;
}

std::string message_role(const Fields& message) {
  std::string role = message.required_text("role");
  if (role != "system" && role != "developer" && role != "user" && role != "assistant" && role != "tool" &&
      role != "function")
    message.fail("role", fmt::format("must be system, developer, user, assistant or tool, not {}", in_quotes(role)));
  return role == "developer" ? "system" : role;
}

Json template_call(const Fields& call) {
  const auto function = call.object("function");
  if (!function) call.fail("function", "is missing");
  Json out = call.json();
  out["function"]["name"] = function->required_text("name");
  const Json* arguments = function->find("arguments");
  out["function"]["arguments"] =
      arguments == nullptr ? Json::object() : call_arguments(*arguments, function->path("arguments"));
  return out;
}

Json template_message(const Json& json, const std::string& where) {
  const Fields message(json, where);
  Json out = json;
  out["role"] = message_role(message);
  if (const Json* content = message.find("content"))
    out["content"] = content_text(*content, message.path("content"));
  else
    out["content"] = "";
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr) {
    out.erase("tool_calls");
    return out;
  }
  if (!calls->is_array()) message.fail("tool_calls", "must be a list");
  out["tool_calls"] = Json::array();
  for (std::size_t i = 0; i < calls->size(); ++i)
    out["tool_calls"].push_back(template_call(Fields((*calls)[i], fmt::format("{}.tool_calls[{}]", where, i))));
  if (calls->empty()) out.erase("tool_calls");
  return out;
}

void read_chat_tools(const Fields& fields, const RequestLimits& limits, ChatRequest& out) {
  const Json* tools = fields.find("tools");
  if (tools != nullptr) {
    if (!tools->is_array()) fields.fail("tools", "must be a list");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const Fields tool((*tools)[i], fmt::format("tools[{}]", i));
      if (tool.text("type").value_or("function") != "function")
        tool.fail("type", "must be \"function\": other tools are not supported");
      const auto function = tool.object("function");
      if (!function) tool.fail("function", "is missing");
      add_tool(*function, limits, out);
    }
  }
  read_tool_choice(fields, out);
}

}  // namespace

Json parse_body(const std::string& body) {
  try {
    return parse_ordered_json(body, "the request's body");
  } catch (const FileError& error) {
    throw ApiError(400, error.what());
  }
}

SamplerOptions GenerationRequest::sampling(const SamplerOptions& recommended) const {
  SamplerOptions out = recommended;
  out.temperature = temperature.value_or(out.temperature);
  out.top_k = top_k.value_or(out.top_k);
  out.top_p = top_p.value_or(out.top_p);
  out.min_p = min_p.value_or(out.min_p);
  out.repetition_penalty = repetition_penalty.value_or(out.repetition_penalty);
  out.presence_penalty = presence_penalty.value_or(out.presence_penalty);
  out.frequency_penalty = frequency_penalty.value_or(out.frequency_penalty);
  out.logit_bias.insert(out.logit_bias.end(), logit_bias.begin(), logit_bias.end());
  out.seed = seed ? *seed : std::random_device{}();
  return out;
}

void read_sampling(const Fields& fields, const RequestLimits& limits, GenerationRequest& out) {
  out.model = fields.text("model").value_or("");
  out.temperature = as_float(fields.number("temperature", 0, 100));
  out.top_p = as_float(fields.number("top_p", 0, 1));
  if (out.top_p == 0.0f) out.top_p = 1e-6f;  // some clients mean greedy sampling by it
  out.min_p = as_float(fields.number("min_p", 0, 1));
  out.top_k = as_int(fields.integer("top_k", 0, max_int));
  out.repetition_penalty = as_float(fields.number("repetition_penalty", 0.01, 100));
  out.presence_penalty = as_float(fields.number("presence_penalty", -2, 2));
  out.frequency_penalty = as_float(fields.number("frequency_penalty", -2, 2));
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) out.seed = static_cast<std::uint64_t>(*seed);
  read_stop(fields, limits, out);
  read_logit_bias(fields, out);
  out.choices = static_cast<int>(fields.integer("n", 1, limits.choices).value_or(1));
  out.stream = fields.boolean("stream").value_or(false);
  if (const auto options = fields.object("stream_options"))
    out.include_usage = options->boolean("include_usage").value_or(false);
}

void read_max_tokens(const Fields& fields, std::string_view name, const RequestLimits& limits, GenerationRequest& out) {
  const int most = limits.max_tokens > 0 ? limits.max_tokens : max_int;
  const Json* given = fields.find(name);
  if (given != nullptr && *given == -1)
    out.max_tokens = most;  // some clients ask for all that the context allows in this way
  else if (const auto tokens = fields.integer(name, 1, most))
    out.max_tokens = static_cast<int>(*tokens);
}

void read_variables(const Fields& fields, ChatRequest& out) {
  if (const auto variables = fields.object("chat_template_kwargs")) out.variables = variables->json();
}

void read_effort(const Fields& fields, std::string_view name, ChatRequest& out) {
  const auto effort = fields.text(name);
  if (!effort) return;
  if (out.variables.is_null()) out.variables = Json::object();
  out.variables["reasoning_effort"] = *effort;
  if (*effort == "none") out.variables["enable_thinking"] = false;
}

void read_format(const Fields& format, const Fields& schema_holder, GenerationRequest& out) {
  const std::string type = format.required_text("type");
  if (type == "text") return;
  if (type == "json_object") {
    out.schema = Json{{"type", "object"}};
    return;
  }
  if (type != "json_schema") format.fail("type", "must be text, json_object or json_schema");
  out.schema = schema_holder.require("schema");
}

std::string content_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw ApiError(400, where + " must be a string or a list of parts", where);
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Fields part(content[i], fmt::format("{}[{}]", where, i));
    const std::string type = part.required_text("type");
    if (type != "text" && type != "input_text" && type != "output_text")
      part.fail("type", fmt::format("is {}, but this server accepts only text", in_quotes(type)));
    out += part.required_text("text");
  }
  return out;
}

Json call_arguments(const Json& arguments, const std::string& where) {
  if (arguments.is_object()) return arguments;
  if (!arguments.is_string()) throw ApiError(400, where + " must be a JSON object as text", where);
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.empty()) return Json::object();
  try {
    return parse_ordered_json(text, where);
  } catch (const FileError&) {
    return text;  // malformed arguments that a model may have written
  }
}

void add_tool(const Fields& function, const RequestLimits& limits, ChatRequest& out) {
  const std::string name = function.required_text("name");
  if (name.empty() || name.size() > 128) function.fail("name", "must have 1 to 128 characters");
  for (const char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
          c == '.'))
      function.fail("name", "may contain only letters, digits, _, - and .");
  if (out.tools.size() >= static_cast<std::size_t>(limits.tools))
    throw ApiError(400, fmt::format("tools may list at most {} functions", limits.tools), "tools");
  Json parameters = {{"type", "object"}, {"properties", Json::object()}};
  if (const auto given = function.object("parameters")) parameters = given->json();
  Json shown = {{"name", name}, {"description", function.text("description").value_or("")}, {"parameters", parameters}};
  if (out.tools_json.is_null()) out.tools_json = Json::array();
  out.tools_json.push_back({{"type", "function"}, {"function", shown}});
  out.tools.push_back({name, std::move(parameters)});
}

void read_tool_choice(const Fields& fields, ChatRequest& out) {
  out.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  const Json* choice = fields.find("tool_choice");
  out.tool_choice = out.tools.empty() ? ToolChoice::none : ToolChoice::automatic;
  if (choice == nullptr || *choice == "auto") return;
  if (*choice == "none") {
    out.tool_choice = ToolChoice::none;
    out.tools_json = nullptr;
    out.tools.clear();
    return;
  }
  if (out.tools.empty()) fields.fail("tool_choice", "asks for a call, but there are no tools");
  out.tool_choice = ToolChoice::required;
  if (*choice == "required") return;
  const Fields named(*choice, "tool_choice");
  const auto function = named.object("function");
  const std::string name = function ? function->required_text("name") : named.required_text("name");
  std::erase_if(out.tools, [&](const Tool& tool) { return tool.name != name; });
  if (out.tools.empty())
    fields.fail("tool_choice", fmt::format("names {}, which is not among the tools", in_quotes(name)));
}

ChatRequest parse_chat_request(const Json& body, const RequestLimits& limits) {
  const Fields fields(body);
  ChatRequest out;
  read_sampling(fields, limits, out);
  read_max_tokens(fields, "max_tokens", limits, out);
  read_max_tokens(fields, "max_completion_tokens", limits, out);
  if (fields.boolean("logprobs").value_or(false)) out.logprobs = 0;
  if (const auto count = fields.integer("top_logprobs", 0, limits.top_logprobs)) {
    if (!out.logprobs && *count > 0) fields.fail("top_logprobs", "needs \"logprobs\": true");
    if (out.logprobs) out.logprobs = static_cast<int>(*count);
  }
  if (const auto format = fields.object("response_format")) {
    const auto schema = format->object("json_schema");
    read_format(*format, schema ? *schema : *format, out);
  }
  read_chat_tools(fields, limits, out);
  const Json& messages = fields.require("messages");
  if (!messages.is_array() || messages.empty()) fields.fail("messages", "must be a list of at least one message");
  out.messages = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i)
    out.messages.push_back(template_message(messages[i], fmt::format("messages[{}]", i)));
  read_variables(fields, out);
  read_effort(fields, "reasoning_effort", out);
  return out;
}

std::vector<Prompt> parse_prompts(const Fields& fields, std::string_view name, int most) {
  const Json& given = fields.require(name);
  if (given.is_string()) return {given.get<std::string>()};
  if (!given.is_array() || given.empty()) fields.fail(name, "must be a string, a list of strings, or tokens");
  if (given[0].is_number()) return {tokens_of(given, fields, name)};
  if (given.size() > static_cast<std::size_t>(most)) fields.fail(name, fmt::format("may list at most {} texts", most));
  std::vector<Prompt> out;
  for (const Json& one : given) {
    if (one.is_string())
      out.emplace_back(one.get<std::string>());
    else if (one.is_array())
      out.emplace_back(tokens_of(one, fields, name));
    else
      fields.fail(name, "must be a string, a list of strings, or tokens");
  }
  return out;
}

CompletionRequest parse_completion_request(const Json& body, const RequestLimits& limits) {
  const Fields fields(body);
  CompletionRequest out;
  read_sampling(fields, limits, out);
  read_max_tokens(fields, "max_tokens", limits, out);
  if (!out.max_tokens) out.max_tokens = 16;  // OpenAI's default
  if (const auto count = fields.integer("logprobs", 0, limits.top_logprobs)) out.logprobs = static_cast<int>(*count);
  if (const auto format = fields.object("response_format")) {
    const auto schema = format->object("json_schema");
    read_format(*format, schema ? *schema : *format, out);
  }
  out.prompts = parse_prompts(fields, "prompt", limits.choices);
  out.echo = fields.boolean("echo").value_or(false);
  if (out.echo && out.logprobs) fields.fail("echo", "cannot be combined with logprobs");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty()) fields.fail("suffix", "is not supported");
  if (const auto best = fields.integer("best_of", 1, limits.choices); best && *best != out.choices)
    fields.fail("best_of", "is not supported, except if it equals n");
  if (out.choices * std::ssize(out.prompts) > limits.choices)
    fields.fail("n", fmt::format("times the number of prompts may be at most {}", limits.choices));
  return out;
}

}  // namespace jerboa::server
