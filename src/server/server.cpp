#include "server/server.h"

#include "server/access.h"
#include "server/api.h"

namespace jerboa::server {

// The threads of the models hold exchanges of the HTTP server, and are joined before it goes.
struct Server::Parts {
  Parts(std::vector<ServedModel> models, const ServerOptions& options)
      : pool(std::make_unique<ModelPool>(std::move(models), options.model, options.queue, options.memory)),
        api(*pool, options.limits),
        access{.api_key = options.api_key,
               .origins = options.cors,
               .host = options.http.host,
               .open_paths = api.open_paths()},
        http(
            options.http, [this](const HttpRequest& head) { return screen(head, access); },
            [this](const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
              api.handle(request, std::move(exchange));
            }) {}
  ~Parts() { pool.reset(); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::unique_ptr<ModelPool> pool;
  Api api;
  AccessOptions access;
  HttpServer http;
};

Server::Server(std::vector<ServedModel> models, const ServerOptions& options)
    : parts_(std::make_unique<Parts>(std::move(models), options)) {}
Server::~Server() = default;

void Server::load_first() { parts_->pool->workers().front()->load(); }
int Server::port() const { return parts_->http.port(); }
void Server::run() { parts_->http.run(); }
void Server::drain() { parts_->http.drain(); }

}  // namespace jerboa::server
