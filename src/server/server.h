#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <jerboa/language/options.h>

#include "server/http_server.h"
#include "server/model_worker.h"
#include "server/request.h"
#include "server/server_tools.h"

namespace jerboa::server {

struct ServerOptions {
  HttpOptions http = {};
  RequestLimits limits = {};
  std::string api_key = {};            ///< that clients must send; "": none
  std::vector<std::string> cors = {};  ///< origins of other pages that may use the server
  int queue = 256;                     ///< limit of a model's unfinished requests: 429
  std::int64_t memory = 0;             ///< for weights and caches of all models together; 0: unlimited
  double idle_seconds = 0;             ///< after which an unused model is unloaded; 0: never
  bool is_quiet = true;                ///< logs errors, but neither requests nor loading
  LanguageModelOptions model = {};
  ServerTools tools = {};  ///< tools that the server calls itself, for requests that ask for it
};

/// An HTTP server with OpenAI's API for a number of models.
class Server {
 public:
  /// Binds the port; throws UsageError if that fails.
  Server(std::vector<ServedModel> models, const ServerOptions& options);
  ~Server();

  /// Loads the first model at once, instead of on its first request.
  void load_first();
  int port() const;
  /// Serves until drain(), or until a signal if HttpOptions::handles_signals; calls `on_ready` once signals are
  /// handled.
  void run(const std::function<void()>& on_ready = {});
  /// Lets run() return once all requests have been answered. Any thread may call it.
  void drain();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace jerboa::server
