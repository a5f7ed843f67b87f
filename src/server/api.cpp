#include "server/api.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

#include "base/parse_json.h"
#include "server/encoder_task.h"
#include "server/generation_task.h"
#include "server/page_files.h"
#include "server/token_tasks.h"

namespace jerboa::server {
namespace {

constexpr std::string_view model_prefix = "/v1/models/";

std::string unescaped(std::string_view path) {
  std::string out;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  };
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && i + 2 < path.size() && digit(path[i + 1]) >= 0 && digit(path[i + 2]) >= 0) {
      out += static_cast<char>(digit(path[i + 1]) * 16 + digit(path[i + 2]));
      i += 2;
    } else {
      out += path[i];
    }
  }
  return out;
}

std::string model_of(const Json& body) { return Fields(body).text("model").value_or(""); }

}  // namespace

Api::Api(ModelPool& models, RequestLimits limits, bool logs_requests, ServerTools tools)
    : models_(models),
      limits_(limits),
      tools_(std::move(tools)),
      metrics_(logs_requests),
      created_(static_cast<std::int64_t>(std::time(nullptr))) {
  limits_.tools = std::max(limits_.tools, static_cast<int>(tools_.tools.size()));
  routes_.push_back({"GET", "/health", [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
                       exchange->respond({.body = dump({{"status", "ok"}})});
                     }});
  add_page();
  add_model_list();
  add_generation();
  add_tokens();
  add_encoding();
  add_metrics();
}

std::vector<std::string> Api::open_paths() const {
  std::vector<std::string> out = {"/health"};
  for (const PageFile& file : page_files()) out.emplace_back(file.path);
  return out;
}

void Api::handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
  try {
    const Route* route = find(request);
    exchange = metrics_.count(request, route != nullptr ? route->path : "other", std::move(exchange));
    if (route == nullptr) refuse(request);
    route->answer(request, exchange);
  } catch (const std::exception& error) {
    exchange->respond(to_api_error(error).response());
  }
}

bool Api::is_at(const Route& route, const std::string& path) {
  return route.path == path || (route.path == model_prefix && path.rfind(model_prefix, 0) == 0);
}

const Api::Route* Api::find(const HttpRequest& request) const {
  for (const Route& route : routes_)
    if (route.method == request.method && is_at(route, request.path)) return &route;
  return nullptr;
}

void Api::refuse(const HttpRequest& request) const {
  for (const Route& route : routes_)
    if (is_at(route, request.path))
      throw ApiError(405, fmt::format("{} does not take {}", request.path, in_quotes(request.method)));
  throw ApiError(404, fmt::format("there is no route {}", in_quotes(request.path)), "", "unknown_url");
}

void Api::add_page() {
  const Headers headers = {
      {"Cache-Control", "no-cache"},
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
       "form-action 'none'; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"}};
  for (const PageFile& file : page_files())
    routes_.push_back(
        {"GET", std::string(file.path), [file, headers](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
           exchange->respond({.type = std::string(file.type), .body = std::string(file.content), .headers = headers});
         }});
}

Json Api::model_json(const ModelWorker& worker) const {
  const ModelWorker::Status status = worker.status();
  Json out = {{"id", worker.served().name},
              {"object", "model"},
              {"created", created_},
              {"owned_by", "jerboa"},
              {"loaded", status.is_loaded}};
  if (status.is_loaded) {
    out["max_model_len"] = status.context;
    if (status.parameters > 0) out["parameters"] = status.parameters;
  }
  return out;
}

void Api::add_model_list() {
  routes_.push_back({"GET", "/v1/models", [this](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
                       Json data = Json::array();
                       for (const auto& worker : models_.workers()) data.push_back(model_json(*worker));
                       Json list = {{"object", "list"}, {"data", data}};
                       for (const ServerTool& tool : tools_.tools) list["server_tools"].push_back(tool.name);
                       exchange->respond({.body = dump(list)});
                     }});
  routes_.push_back(
      {"GET", std::string(model_prefix), [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
         const std::string name = unescaped(request.path.substr(model_prefix.size()));
         exchange->respond({.body = dump(model_json(models_.find(name)))});
       }});
}

const ServerTools* Api::tools_for(Json& body, bool of_chat) const {
  const Fields fields(body);
  if (!fields.boolean("server_tools").value_or(false)) return nullptr;
  if (tools_.tools.empty()) fields.fail("server_tools", "cannot be used: the server was started without --mcp");
  for (const char* other : {"tools", "response_format", "text"})
    if (fields.find(other) != nullptr) fields.fail("server_tools", fmt::format("cannot be combined with {}", other));
  if (fields.integer("n", 1, limits_.choices).value_or(1) != 1) fields.fail("n", "must be 1 with server_tools");
  body["tools"] = tools_json(tools_.tools, of_chat);
  return &tools_;
}

// OpenAI's three formats for generation, each with the functions that parse, answer and run it.
void Api::add_generation() {
  const auto add = [this](const char* path, auto make) {
    routes_.push_back(
        {"POST", path, [this, make](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
           auto [model, task] = make(parse_body(request.body), exchange);
           models_.find(model).submit(std::move(task));
         }});
  };
  const auto chat = [this](auto parse, auto make_reply, bool of_chat) {
    return [this, parse, make_reply, of_chat](Json body, const std::shared_ptr<Exchange>& exchange) {
      const ServerTools* tools = tools_for(body, of_chat);
      ChatRequest asked = parse(body, limits_);
      auto reply = make_reply(exchange, asked);
      std::string model = asked.model;
      return std::pair(std::move(model), make_chat_task(std::move(asked), std::move(reply), limits_, tools));
    };
  };
  add("/v1/chat/completions", chat(parse_chat_request, make_chat_reply, true));
  add("/v1/responses", chat(parse_responses_request, make_responses_reply, false));
  add("/v1/completions", [this](const Json& body, const std::shared_ptr<Exchange>& exchange) {
    CompletionRequest asked = parse_completion_request(body, limits_);
    auto reply = make_completion_reply(exchange, asked);
    std::string model = asked.model;
    return std::pair(std::move(model), make_completion_task(std::move(asked), std::move(reply), limits_));
  });
}

void Api::add_tokens() {
  const auto add = [this](const std::string& path, Json (*call)(LoadedModel&, const Json&)) {
    routes_.push_back(
        {"POST", path, [this, call](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
           Json body = parse_body(request.body);
           ModelWorker& worker = models_.find(model_of(body));
           worker.submit(make_call_task(
               [call, body = std::move(body)](LoadedModel& model) { return call(model, body); }, exchange, limits_));
         }});
  };
  add("/tokenize", tokenize);
  add("/detokenize", detokenize);
}

void Api::add_encoding() {
  const auto add = [this](const char* path, auto parse, auto make_task) {
    routes_.push_back({"POST", path, [=, this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                         auto asked = parse(parse_body(request.body), limits_);
                         ModelWorker& worker = models_.find(asked.model);
                         worker.submit(make_task(std::move(asked), exchange, limits_));
                       }});
  };
  add("/v1/embeddings", parse_embedding_request, make_embedding_task);
  add("/v1/rerank", parse_rerank_request, make_rerank_task);
}

void Api::add_metrics() {
  routes_.push_back({"GET", "/metrics", [this](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
                       exchange->respond({.type = "text/plain; version=0.0.4; charset=utf-8",
                                          .body = metrics_.print(models_.metrics())});
                     }});
  routes_.push_back({"GET", "/v1/metrics", [this](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
                       exchange->respond({.body = dump(metrics_.json(models_.metrics()))});
                     }});
}

}  // namespace jerboa::server
