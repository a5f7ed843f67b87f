#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/metrics.h"
#include "server/model_pool.h"
#include "server/request.h"
#include "server/server_tools.h"

namespace jerboa::server {

/// The server's routes: decides what a request wants, and answers it or passes it to a model's thread.
class Api {
 public:
  Api(ModelPool& models, RequestLimits limits, bool logs_requests, ServerTools tools = {});
  void handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange);
  /// Paths that need no API key.
  std::vector<std::string> open_paths() const;

 private:
  using Answer = std::function<void(const HttpRequest& request, std::shared_ptr<Exchange> exchange)>;
  struct Route {
    std::string method, path;
    Answer answer;
  };

  static bool is_at(const Route& route, const std::string& path);
  const Route* find(const HttpRequest& request) const;
  /// Throws an error that says why there is no route for a request.
  [[noreturn]] void refuse(const HttpRequest& request) const;
  void add_page();
  void add_model_list();
  void add_generation();
  void add_tokens();
  void add_encoding();
  void add_metrics();
  Json model_json(const ModelWorker& worker) const;
  /// The server's tools if the request asks for them; adds their descriptions to its body.
  const ServerTools* tools_for(Json& body, bool of_chat) const;

  ModelPool& models_;
  RequestLimits limits_;
  ServerTools tools_;
  Metrics metrics_;
  std::vector<Route> routes_;
  std::int64_t created_;
};

}  // namespace jerboa::server
