#include "server/api.h"

#include <algorithm>
#include <ctime>
#include <fmt/format.h>

#include "base/parse_json.h"
#include "server/embeddings.h"
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

Api::Api(ModelPool& models, RequestLimits limits)
    : models_(models), limits_(limits), created_(static_cast<std::int64_t>(std::time(nullptr))) {
  routes_.push_back({"GET", "/health", [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
                       exchange->respond({.body = dump({{"status", "ok"}})});
                     }});
  add_page();
  add_model_list();
  add_generation();
  add_tokens();
  add_embeddings();
  add_metrics();
}

std::vector<std::string> Api::open_paths() const {
  std::vector<std::string> out = {"/health"};
  for (const PageFile& file : page_files()) out.emplace_back(file.path);
  return out;
}

void Api::handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
  try {
    const Route& route = find(request);
    exchange = metrics_.count(route.path, std::move(exchange));
    route.answer(request, exchange);
  } catch (const std::exception& error) {
    exchange->respond(to_api_error(error).response());
  }
}

const Api::Route& Api::find(const HttpRequest& request) const {
  const auto is_path = [&](const Route& route) {
    const bool is_model = route.path == model_prefix && request.path.rfind(model_prefix, 0) == 0;
    return is_model || route.path == request.path;
  };
  bool has_path = false;
  for (const Route& route : routes_) {
    if (!is_path(route)) continue;
    if (route.method == request.method) return route;
    has_path = true;
  }
  if (has_path) throw ApiError(405, fmt::format("{} does not take {}", request.path, in_quotes(request.method)));
  throw ApiError(404, fmt::format("there is nothing at {}", in_quotes(request.path)), "", "unknown_url");
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
                       exchange->respond({.body = dump({{"object", "list"}, {"data", data}})});
                     }});
  routes_.push_back(
      {"GET", std::string(model_prefix), [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
         const std::string name = unescaped(request.path.substr(model_prefix.size()));
         exchange->respond({.body = dump(model_json(models_.find(name)))});
       }});
}

// The three formats of OpenAI's for the same thing: how a request is read, answered and computed.
void Api::add_generation() {
  const auto add = [this](const char* path, auto parse, auto make_reply, auto make_task) {
    routes_.push_back({"POST", path, [=, this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                         auto asked = parse(parse_body(request.body), limits_);
                         auto reply = make_reply(exchange, asked);
                         ModelWorker& worker = models_.find(asked.model);
                         worker.submit(make_task(std::move(asked), std::move(reply), limits_));
                       }});
  };
  add("/v1/chat/completions", parse_chat_request, make_chat_reply, make_chat_task);
  add("/v1/completions", parse_completion_request, make_completion_reply, make_completion_task);
  add("/v1/responses", parse_responses_request, make_responses_reply, make_chat_task);
}

void Api::add_tokens() {
  const auto add = [this](const std::string& path, Json (*call)(LoadedModel&, const Json&)) {
    routes_.push_back(
        {"POST", path, [this, call](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
           Json body = parse_body(request.body);
           ModelWorker& worker = models_.find(model_of(body));
           worker.submit(make_call_task(
               [call, body = std::move(body)](LoadedModel& model) { return call(model, body); }, exchange));
         }});
  };
  add("/tokenize", tokenize);
  add("/detokenize", detokenize);
}

void Api::add_embeddings() {
  routes_.push_back(
      {"POST", "/v1/embeddings", [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
         EmbeddingRequest wanted = parse_embedding_request(parse_body(request.body), limits_);
         ModelWorker& worker = models_.find(wanted.model);
         worker.submit(make_call_task([wanted = std::move(wanted)](LoadedModel& model) { return embed(model, wanted); },
                                      exchange));
       }});
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
