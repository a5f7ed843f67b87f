#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "server/metrics.h"
#include "server/model_worker.h"

namespace jerboa::server {

/// The server's models by name. Models are loaded on their first request, and unloaded when others need their memory,
/// least recently used first.
class ModelPool {
 public:
  ModelPool(std::vector<ServedModel> models, const WorkerOptions& options, std::int64_t memory);
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  /// The first model if the name is empty; throws ApiError 404 if there is none of that name.
  ModelWorker& find(std::string_view name);
  const std::vector<std::unique_ptr<ModelWorker>>& workers() const { return workers_; }
  std::vector<ModelMetrics> metrics() const;

 private:
  bool make_room();
  void look_after_all();

  MemoryBudget budget_;
  std::vector<std::unique_ptr<ModelWorker>> workers_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_over_ = false;
  std::thread watch_;  // times out waiting requests, and unloads idle models
};

}  // namespace jerboa::server
