#include "mcp/client.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "mcp/protocol.h"

namespace jerboa::mcp {
namespace {

constexpr double slice_seconds = 0.05;  // how often cancellation is checked
constexpr int max_pages = 1000;         // of a list of tools
constexpr double least_handshake_seconds = 60;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string part_text(const Json& part) {
  const std::string type = text_of(part, "type");
  if (type == "text") return text_of(part, "text");
  if (type == "image" || type == "audio")
    return fmt::format("[{}: {}, {} bytes]", type, text_of(part, "mimeType"), text_of(part, "data").size() / 4 * 3);
  if (type == "resource_link") return fmt::format("[{}: {}]", text_of(part, "name"), text_of(part, "uri"));
  if (type == "resource" && part.contains("resource")) {
    const Json& resource = part["resource"];
    const std::string text = text_of(resource, "text");
    return text.empty() ? fmt::format("[resource: {}]", text_of(resource, "uri")) : text;
  }
  return fmt::format("[{}]", type.empty() ? "a part of an unknown type" : type);
}

}  // namespace

std::string content_text(const Json& content) {
  std::string text;
  if (!content.is_array()) return text;
  for (const Json& part : content) text += (text.empty() ? "" : "\n") + part_text(part);
  return text;
}

Client::Client(std::unique_ptr<Transport> transport, ClientOptions options, const CallContext& context)
    : transport_(std::move(transport)), options_(std::move(options)) {
  const Json result = request("initialize",
                              {{"protocolVersion", protocol_versions[0]},
                               {"capabilities", Json::object()},
                               {"clientInfo", {{"name", "jerboa"}, {"version", options_.version}}}},
                              context);
  const std::string version = text_of(result, "protocolVersion");
  if (!is_known_version(version))
    fail(fmt::format("it speaks version '{}' of the protocol, which is not known", version));
  try {
    transport_->begin(version);
    transport_->send(make_notification("notifications/initialized", Json::object()));
  } catch (const McpError& error) {
    fail(error.what());
  }
}

void Client::fail(const std::string& problem) const { throw McpError(fmt::format("{}: {}", options_.name, problem)); }

// The caller learns why the call was given up, even if the server cannot be told.
void Client::cancel(std::int64_t id, const std::string& reason) {
  try {
    transport_->send(make_notification("notifications/cancelled", {{"requestId", id}, {"reason", reason}}));
  } catch (const McpError&) {
  }
}

// Answers the server's requests: pings, and features that this client does not offer.
void Client::answer(const Json& message) {
  if (!message.contains("id")) return;
  const std::string method = text_of(message, "method");
  try {
    transport_->send(method == "ping" ? make_result(message["id"], Json::object())
                                      : make_error(message["id"], method_not_found,
                                                   fmt::format("jerboa does not offer {}", method)));
  } catch (const ConnectionLost& error) {
    throw McpError(error.what());  // the request itself did reach the server
  }
}

Json Client::request(const std::string& method, Json params, const CallContext& context) {
  const std::int64_t id = ++last_id_;
  try {
    transport_->send(make_request(id, method, std::move(params)));
    return wait_for(id, method, context);
  } catch (const ConnectionLost& error) {
    throw ConnectionLost(fmt::format("{}: {}", options_.name, error.what()));
  } catch (const McpError& error) {
    fail(error.what());
  }
}

Json Client::wait_for(std::int64_t id, const std::string& method, const CallContext& context) {
  auto begun = Clock::now();
  // A package that is run for the first time may have to be downloaded.
  const double allowed =
      method == "initialize" ? std::max(options_.seconds, least_handshake_seconds) : options_.seconds;
  for (;;) {
    const bool is_cancelled = context.is_cancelled();
    if (is_cancelled || seconds_since(begun) > allowed) {
      // The protocol does not allow the handshake to be cancelled.
      if (method != "initialize") cancel(id, is_cancelled ? "cancelled by the user" : "it took too long");
      throw McpError(is_cancelled ? "the call was cancelled"
                                  : fmt::format("no answer to {} within {} seconds", method, allowed));
    }
    const std::optional<Json> message = transport_->receive(slice_seconds);
    if (!message || !message->is_object()) continue;
    if (text_of(*message, "method") == "notifications/progress") {
      const Json& params = message->value("params", Json::object());
      if (params.value("progressToken", Json()) != Json(id)) continue;
      begun = Clock::now();
      const auto number = [&](const char* name) {
        const Json value = params.value(name, Json());
        return value.is_number() ? value.get<double>() : 0.0;
      };
      context.on_progress(number("progress"), number("total"));
    } else if (message->contains("method")) {
      answer(*message);
    } else if (message->value("id", Json()) == Json(id)) {
      if (message->contains("result")) return (*message)["result"];
      const Json error = message->value("error", Json::object());
      throw McpError(fmt::format("{} failed: {}", method, text_of(error, "message")));
    }
  }
}

std::vector<Json> Client::list_tools(const CallContext& context) {
  std::vector<Json> tools;
  Json params = Json::object();
  for (int page = 0; page < max_pages; ++page) {
    const Json result = request("tools/list", params, context);
    const Json listed = result.is_object() ? result.value("tools", Json::array()) : Json::array();
    for (const Json& tool : listed)
      if (!text_of(tool, "name").empty()) tools.push_back(tool);
    const std::string next = text_of(result, "nextCursor");
    if (next.empty()) return tools;
    params = {{"cursor", next}};
  }
  fail("its list of tools does not end");
}

ToolResult Client::call_tool(const std::string& name, const Json& arguments, const CallContext& context) {
  const Json result = request(
      "tools/call", {{"name", name}, {"arguments", arguments}, {"_meta", {{"progressToken", last_id_ + 1}}}}, context);
  if (!result.is_object()) fail("the result of a call is not an object");
  std::string text = content_text(result.value("content", Json::array()));
  if (text.empty() && result.contains("structuredContent"))
    text = result["structuredContent"].dump(-1, ' ', false, Json::error_handler_t::replace);
  const Json is_error = result.value("isError", Json(false));
  return {text, is_error.is_boolean() && is_error.get<bool>()};
}

std::vector<Tool> tools_of(const std::shared_ptr<Client>& client, const CallContext& context) {
  std::vector<Tool> tools;
  for (const Json& listed : client->list_tools(context)) {
    const std::string name = text_of(listed, "name");
    Json schema = listed.value("inputSchema", Json::object());
    schema.erase("$schema");
    tools.push_back({name, text_of(listed, "description"), std::move(schema),
                     [client, name](const Json& arguments, const CallContext& calling) {
                       return client->call_tool(name, arguments, calling);
                     }});
  }
  return tools;
}

}  // namespace jerboa::mcp
