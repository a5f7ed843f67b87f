#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/fields.h"
#include "server/http.h"
#include "server/model_worker.h"

namespace jerboa::server {

struct ModelMetrics {
  std::string name;
  ModelWorker::Status status;
};

/// Counts requests and answers, and logs a line for each.
class Metrics {
 public:
  explicit Metrics(bool logs_requests = false) : logs_requests_(logs_requests) {}
  /// Wraps `exchange` to count its answer under the name of a route.
  std::shared_ptr<Exchange> count(const HttpRequest& request, const std::string& route,
                                  std::shared_ptr<Exchange> exchange);
  /// Prometheus's text format.
  std::string print(const std::vector<ModelMetrics>& models) const;
  Json json(const std::vector<ModelMetrics>& models) const;

 private:
  class CountedExchange;
  void begin();
  void answer(const std::string& route, int status);
  void end(double seconds);

  bool logs_requests_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> answers_;
  std::int64_t in_progress_ = 0, ended_ = 0;
  double seconds_ = 0;
};

}  // namespace jerboa::server
