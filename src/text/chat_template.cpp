#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <map>

#include <jerboa/text/chat_template.h>

#include "base/json_value.h"
#include "base/parse_json.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace jerboa {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(fmt::format("{}: cannot be read", path.string()));
  return {std::istreambuf_iterator<char>(file), {}};
}

OrderedJson read_json(const std::filesystem::path& path) { return parse_ordered_json(read_text(path), path.string()); }

// bos_token and others, which are strings or objects with "content".
OrderedJson special_tokens(const OrderedJson& config) {
  OrderedJson out = OrderedJson::object();
  for (const auto& [key, value] : config.items()) {
    if (key.size() < 6 || key.compare(key.size() - 6, 6, "_token") != 0) continue;
    if (value.is_string())
      out[key] = value;
    else if (value.is_object() && value.contains("content") && value["content"].is_string())
      out[key] = value["content"];
  }
  return out;
}

// One template, or a list of {"name", "template"}.
std::map<std::string, std::string> named_templates(const OrderedJson& entry, const std::filesystem::path& path) {
  std::map<std::string, std::string> out;
  if (entry.is_string()) {
    out["default"] = entry.get<std::string>();
  } else if (entry.is_array()) {
    for (const OrderedJson& item : entry) {
      if (!item.is_object() || !item.contains("name") || !item["name"].is_string() || !item.contains("template") ||
          !item["template"].is_string())
        throw FileError(fmt::format("{}: an entry of chat_template has no name or no template", path.string()));
      out[item["name"].get<std::string>()] = item["template"].get<std::string>();
    }
  }
  return out;
}

}  // namespace

TemplateError::TemplateError(int line, const std::string& message)
    : Error(fmt::format("chat template, line {}: {}", line, message)), line_(line) {}

ChatTemplate::ChatTemplate(std::string source)
    : source_(std::move(source)), program_(std::make_shared<const jinja::Program>(jinja::parse(source_))) {}

ChatTemplate ChatTemplate::load(const std::filesystem::path& folder, const std::string& name) {
  const auto config_path = folder / "tokenizer_config.json";
  const OrderedJson config = std::filesystem::exists(config_path) ? read_json(config_path) : OrderedJson::object();
  std::map<std::string, std::string> found;
  if (config.is_object() && config.contains("chat_template"))
    found = named_templates(config["chat_template"], config_path);
  if (const auto path = folder / "chat_template.json"; std::filesystem::exists(path)) {
    const OrderedJson wrapped = read_json(path);
    if (wrapped.is_object() && wrapped.contains("chat_template"))
      for (auto& [key, text] : named_templates(wrapped["chat_template"], path)) found[key] = text;
  }
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path))
    found["default"] = read_text(path);
  if (const auto more = folder / "additional_chat_templates"; std::filesystem::is_directory(more))
    for (const auto& entry : std::filesystem::directory_iterator(more))
      if (entry.path().extension() == ".jinja") found[entry.path().stem().string()] = read_text(entry.path());

  if (found.empty())
    throw FileError(
        fmt::format("{}: has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json",
                    folder.string()));
  const std::string wanted = name.empty() ? "default" : name;
  const auto chosen = found.find(wanted);
  if (chosen == found.end()) {
    std::string names;
    for (const auto& entry : found) names += (names.empty() ? "" : ", ") + in_quotes(entry.first);
    throw UsageError(
        fmt::format("{}: has no chat template {}, but {}", folder.string(), in_quotes(wanted), shortened(names, 400)));
  }
  ChatTemplate out(chosen->second);
  if (const auto tools = found.find("tool_use"); name.empty() && tools != found.end())
    out.tool_program_ = std::make_shared<const jinja::Program>(jinja::parse(tools->second));
  if (config.is_object()) out.tokens_ = make_json(special_tokens(config));
  return out;
}

bool ChatTemplate::is_in(const std::filesystem::path& folder) {
  for (const char* file : {"chat_template.jinja", "chat_template.json"})
    if (std::filesystem::exists(folder / file)) return true;
  const auto path = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(path)) return false;
  const OrderedJson config = read_json(path);
  return config.is_object() && config.contains("chat_template") && !config["chat_template"].is_null();
}

std::optional<ChatTemplate> ChatTemplate::from_config(std::string_view text, const std::string& name) {
  const OrderedJson config = parse_ordered_json(text, name);
  if (!config.is_object() || !config.contains("chat_template")) return std::nullopt;
  const auto found = named_templates(config["chat_template"], name);
  const auto usual = found.find("default");
  if (usual == found.end()) return std::nullopt;
  ChatTemplate out(usual->second);
  if (const auto tools = found.find("tool_use"); tools != found.end())
    out.tool_program_ = std::make_shared<const jinja::Program>(jinja::parse(tools->second));
  out.tokens_ = make_json(special_tokens(config));
  return out;
}

JsonValue to_json(const std::vector<ChatMessage>& messages) {
  auto list = OrderedJson::array();
  for (const ChatMessage& message : messages) list.push_back({{"role", message.role}, {"content", message.content}});
  return make_json(std::move(list));
}

std::string ChatTemplate::render(const std::vector<ChatMessage>& messages, const ChatTemplateOptions& options) const {
  return render(to_json(messages), options);
}

std::string ChatTemplate::render(const JsonValue& messages, const ChatTemplateOptions& options) const {
  return render_with_spans(messages, options).text;
}

RenderedChat ChatTemplate::render_with_spans(const JsonValue& messages, const ChatTemplateOptions& options) const {
  const OrderedJson& list = json_value(messages);
  const OrderedJson& variables = json_value(options.variables);
  if (!list.is_array()) throw UsageError("chat template: the messages must be a list of objects");
  if (!variables.is_null() && !variables.is_object())
    throw UsageError("chat template: the variables must be an object");
  const bool has_tools = !options.tools.is_null();
  const jinja::Program& program = has_tools && tool_program_ ? *tool_program_ : *program_;
  const auto now = options.now ? jinja::Interpreter::TimePoint(std::chrono::seconds(*options.now))
                               : std::chrono::system_clock::now();
  jinja::Interpreter interpreter(program, options.limits, now);
  const auto define = [&](const std::string& name, const OrderedJson& value) {
    interpreter.define(name, [&] {
      try {
        return jinja::from_json(value);
      } catch (const jinja::Fault& fault) {
        throw UsageError(fmt::format("chat template: '{}': {}", name, fault.what()));
      }
    });
  };
  for (const auto& [name, value] : json_value(tokens_).items()) define(name, value);
  define("messages", list);
  define("add_generation_prompt", options.add_generation_prompt);
  define("tools", json_value(options.tools));
  define("documents", json_value(options.documents));
  for (const auto& [name, value] : variables.items()) define(name, value);
  RenderedChat out;
  out.text = interpreter.run();
  out.generated = interpreter.generated();
  return out;
}

}  // namespace jerboa
