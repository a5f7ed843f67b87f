#include "server/model_pool.h"

#include <algorithm>
#include <fmt/format.h>

#include "base/parse_json.h"

namespace jerboa::server {

ModelPool::ModelPool(std::vector<ServedModel> models, const LanguageModelOptions& options, int queue,
                     std::int64_t memory)
    : budget_(memory) {
  if (models.empty()) throw UsageError("a server needs at least one model");
  for (ServedModel& model : models) {
    const auto has_name = [&](const auto& worker) { return worker->served().name == model.name; };
    if (std::any_of(workers_.begin(), workers_.end(), has_name))
      throw UsageError(fmt::format("two models are called {}; name them, as in NAME=PATH", model.name));
    workers_.push_back(
        std::make_unique<ModelWorker>(std::move(model), options, queue, budget_, [this] { return make_room(); }));
  }
}

ModelWorker& ModelPool::find(std::string_view name) {
  if (name.empty()) return *workers_.front();
  for (const auto& worker : workers_)
    if (worker->served().name == name) return *worker;
  throw ApiError(404, fmt::format("the model {} does not exist", in_quotes(name)), "model", "model_not_found");
}

bool ModelPool::make_room() {
  ModelWorker* oldest = nullptr;
  for (const auto& worker : workers_)
    if (worker->is_idle() && (oldest == nullptr || worker->last_used() < oldest->last_used())) oldest = worker.get();
  return oldest != nullptr && oldest->ask_to_unload();
}

std::vector<ModelMetrics> ModelPool::metrics() const {
  std::vector<ModelMetrics> out;
  for (const auto& worker : workers_) out.push_back({worker->served().name, worker->status()});
  return out;
}

}  // namespace jerboa::server
