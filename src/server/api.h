#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/metrics.h"
#include "server/model_pool.h"
#include "server/request.h"

namespace jerboa::server {

/// The server's routes: finds out what a request wants, and gives it to a model's thread or answers it.
class Api {
 public:
  Api(ModelPool& models, RequestLimits limits);
  void handle(const HttpRequest& request, std::shared_ptr<Exchange> exchange);
  /// Paths that need no API key.
  std::vector<std::string> open_paths() const;

 private:
  using Answer = std::function<void(const HttpRequest& request, std::shared_ptr<Exchange> exchange)>;
  struct Route {
    std::string method, path;
    Answer answer;
  };

  const Route& find(const HttpRequest& request) const;
  void add_page();
  void add_model_list();
  void add_generation();
  void add_tokens();
  void add_embeddings();
  void add_metrics();
  Json model_json(const ModelWorker& worker) const;

  ModelPool& models_;
  RequestLimits limits_;
  Metrics metrics_;
  std::vector<Route> routes_;
  std::int64_t created_;
};

}  // namespace jerboa::server
