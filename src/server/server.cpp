#include "server/server.h"

#include <fmt/format.h>

#include "server/access.h"
#include "server/api.h"
#include "server/log.h"

namespace jerboa::server {

// The models' threads hold exchanges of the HTTP server, so they are joined before it is destroyed.
struct Server::Parts {
  Parts(std::vector<ServedModel> models, const ServerOptions& options)
      : pool(std::make_unique<ModelPool>(std::move(models), worker_options(options), options.memory)),
        api(*pool, options.limits, !options.is_quiet, options.tools),
        is_quiet(options.is_quiet),
        access{.api_key = options.api_key,
               .origins = options.cors,
               .host = options.http.host,
               .open_paths = api.open_paths()},
        http(
            options.http, [this](const HttpRequest& head) { return screened(head); },
            [this](const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
              api.handle(request, std::move(exchange));
            }) {}
  ~Parts() { pool.reset(); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  static WorkerOptions worker_options(const ServerOptions& options) {
    return {.model = options.model,
            .queue = options.queue,
            .seconds = options.limits.seconds,
            .idle_seconds = options.idle_seconds,
            .logs_loading = !options.is_quiet};
  }
  Screening screened(const HttpRequest& head) const {
    Screening out = screen(head, access);
    if (!is_quiet && out.answer && out.answer->status >= 400)
      log_line(fmt::format("{} {}", logged(head), out.answer->status));
    return out;
  }

  std::unique_ptr<ModelPool> pool;
  Api api;
  bool is_quiet;
  AccessOptions access;
  HttpServer http;
};

Server::Server(std::vector<ServedModel> models, const ServerOptions& options)
    : parts_(std::make_unique<Parts>(std::move(models), options)) {}
Server::~Server() = default;

void Server::load_first() { parts_->pool->workers().front()->load(); }
int Server::port() const { return parts_->http.port(); }
void Server::run(const std::function<void()>& on_ready) { parts_->http.run(on_ready); }
void Server::drain() { parts_->http.drain(); }

}  // namespace jerboa::server
