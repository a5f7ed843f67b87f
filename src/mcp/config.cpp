#include "mcp/config.h"

#include <algorithm>
#include <fmt/format.h>

#include <jerboa/base/file.h>

#include "base/parse_json.h"

namespace jerboa::mcp {
namespace {

constexpr std::size_t longest_name = 64;

// An object of the file, with its location for messages.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) fail("must be an object");
  }
  [[noreturn]] void fail(const std::string& problem) const { throw UsageError(fmt::format("{} {}", where_, problem)); }

  const Json* find(const char* name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const char* name) const {
    const Json* const found = find(name);
    if (found == nullptr) return "";
    if (!found->is_string()) fail(fmt::format("needs a text as its \"{}\"", name));
    return found->get<std::string>();
  }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> texts;
    const Json* const found = find(name);
    if (found == nullptr) return texts;
    if (!found->is_array()) fail(fmt::format("needs a list of strings as its \"{}\"", name));
    for (const Json& item : *found) {
      if (!item.is_string()) fail(fmt::format("needs a list of strings as its \"{}\"", name));
      texts.push_back(item.get<std::string>());
    }
    return texts;
  }
  std::map<std::string, std::string> pairs(const char* name) const {
    std::map<std::string, std::string> pairs;
    const Json* const found = find(name);
    if (found == nullptr) return pairs;
    if (!found->is_object()) fail(fmt::format("needs an object of texts as its \"{}\"", name));
    for (const auto& [key, value] : found->items()) {
      if (!value.is_string()) fail(fmt::format("needs an object of texts as its \"{}\"", name));
      if (value.get_ref<const std::string&>().find_first_of("\r\n") != std::string::npos)
        fail(fmt::format("has a line break in its \"{}\"", name));
      pairs[key] = value.get<std::string>();
    }
    return pairs;
  }

 private:
  const Json& json_;
  std::string where_;
};

ServerConfig read_server(const std::string& name, const Entry& entry) {
  ServerConfig server{.name = name};
  const std::string command = entry.text("command"), url = entry.text("url"), type = entry.text("type");
  if (type == "sse") entry.fail("is of type sse, which the protocol has replaced by http");
  if (!type.empty() && type != "stdio" && type != "http" && type != "streamable-http" && type != "streamableHttp")
    entry.fail(fmt::format("is of type '{}', but must be stdio or http", type));
  if (command.empty() == url.empty()) entry.fail("needs either a \"command\" or a \"url\"");
  if (!url.empty() && !url.starts_with("http://") && !url.starts_with("https://"))
    entry.fail(fmt::format("has the url '{}'; it must begin with http:// or https://", url));
  if (!command.empty()) {
    server.process = {{command}, entry.pairs("env"), entry.text("cwd")};
    for (std::string& argument : entry.texts("args")) server.process.command.push_back(std::move(argument));
  } else {
    server.http = {url, entry.pairs("headers")};
  }
  if (const Json* seconds = entry.find("timeout")) {
    if (!seconds->is_number() || seconds->get<double>() <= 0 || seconds->get<double>() > 86400)
      entry.fail("needs a \"timeout\" of more than 0 and at most 86400 seconds");
    server.seconds = seconds->get<double>();
  }
  return server;
}

// Replaces characters that models cannot write in the names of tools.
std::string plain_name(std::string name) {
  for (char& c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-')) c = '_';
  if (name.size() > longest_name) name.resize(longest_name);
  return name;
}

}  // namespace

std::vector<ServerConfig> read_config(const std::filesystem::path& path) {
  Json json;
  try {
    json = parse_ordered_json(FileContent(path).text(), path.string());
  } catch (const FileError& error) {
    throw UsageError(error.what());
  }
  const Entry file(json, path.string());
  const Json* const servers = file.find("mcpServers");
  if (servers == nullptr) file.fail("has no \"mcpServers\"");
  const Entry list(*servers, fmt::format("{}: mcpServers", path.string()));
  std::vector<ServerConfig> configs;
  for (const auto& [name, value] : servers->items()) {
    const Entry entry(value, fmt::format("{}: {}", path.string(), name.empty() ? "a server without a name" : name));
    if (name.empty()) entry.fail("needs one");
    const Json* const disabled = entry.find("disabled");
    if (disabled == nullptr || *disabled != Json(true)) configs.push_back(read_server(name, entry));
  }
  return configs;
}

std::shared_ptr<Client> connect(const ServerConfig& config, const std::string& version, const CallContext& context) {
  try {
    return std::make_shared<Client>(config.http.url.empty() ? open_process(config.process) : open_http(config.http),
                                    ClientOptions{config.name, config.seconds, version}, context);
  } catch (const McpError& error) {
    const std::string message = error.what();
    throw McpError(message.starts_with(config.name + ": ") ? message : fmt::format("{}: {}", config.name, message));
  }
}

std::vector<Tool> connect_tools(const ServerConfig& config, const std::string& version, const CallContext& context) {
  auto client = std::make_shared<std::shared_ptr<Client>>(connect(config, version, context));
  std::vector<Tool> tools = tools_of(*client, context);
  for (Tool& tool : tools)
    tool.call = [client, config, version, name = tool.name](const Json& arguments, const CallContext& calling) {
      try {
        return (*client)->call_tool(name, arguments, calling);
      } catch (const ConnectionLost&) {
        *client = connect(config, version, calling);
      }
      return (*client)->call_tool(name, arguments, calling);
    };
  return tools;
}

void add_tools(std::vector<Tool>& tools, std::vector<Tool> added, const std::string& prefix) {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(tools.begin(), tools.end(), [&](const Tool& tool) { return tool.name == name; });
  };
  for (Tool& tool : added) {
    const std::string wanted = tool.name;
    tool.name = plain_name(wanted);
    if (is_taken(tool.name)) tool.name = plain_name(prefix + "_" + wanted);
    for (int number = 2; is_taken(tool.name); ++number)
      tool.name = plain_name(fmt::format("{}_{}_{}", number, prefix, wanted));
    tools.push_back(std::move(tool));
  }
}

std::vector<Tool> connect_all(const std::vector<ServerConfig>& servers, const std::string& version,
                              const CallContext& context) {
  std::vector<Tool> tools;
  for (const ServerConfig& server : servers) add_tools(tools, connect_tools(server, version, context), server.name);
  return tools;
}

}  // namespace jerboa::mcp
