#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/metrics.h"
#include "server/model_worker.h"

namespace jerboa::server {

/// The models that a server has by name. They are loaded when they are first asked for, and go when others need their
/// memory, those first that were not used for longest.
class ModelPool {
 public:
  ModelPool(std::vector<ServedModel> models, const LanguageModelOptions& options, int queue, std::int64_t memory);

  /// The first one if no name is given; throws ApiError 404 if there is none of that name.
  ModelWorker& find(std::string_view name);
  const std::vector<std::unique_ptr<ModelWorker>>& workers() const { return workers_; }
  std::vector<ModelMetrics> metrics() const;

 private:
  bool make_room();

  MemoryBudget budget_;
  std::vector<std::unique_ptr<ModelWorker>> workers_;
};

}  // namespace jerboa::server
