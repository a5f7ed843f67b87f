#include "server/model_pool.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse_json.h"

namespace jerboa::server {
namespace {

constexpr std::chrono::milliseconds watch_period(100);

}  // namespace

ModelPool::ModelPool(std::vector<ServedModel> models, const WorkerOptions& options, std::int64_t memory)
    : budget_(memory) {
  if (models.empty()) throw UsageError("a server needs at least one model");
  for (ServedModel& model : models) {
    const auto has_name = [&](const auto& worker) { return worker->served().name == model.name; };
    if (std::any_of(workers_.begin(), workers_.end(), has_name))
      throw UsageError(fmt::format("two models are called {}; name them, as in NAME=PATH", model.name));
    workers_.push_back(
        std::make_unique<ModelWorker>(std::move(model), options, budget_, [this] { return make_room(); }));
  }
  watch_ = std::thread([this] { look_after_all(); });
}

ModelPool::~ModelPool() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  watch_.join();
  // A worker that needs memory asks the others for it, so all of them must exist until the last one has stopped.
  for (const auto& worker : workers_) worker->stop();
}

void ModelPool::look_after_all() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, watch_period, [this] { return is_over_; })) {
    lock.unlock();
    for (const auto& worker : workers_) worker->look_after();
    lock.lock();
  }
}

ModelWorker& ModelPool::find(std::string_view name) {
  if (name.empty()) return *workers_.front();
  for (const auto& worker : workers_)
    if (worker->served().name == name) return *worker;
  std::vector<std::string> names;
  for (const auto& worker : workers_) names.push_back(worker->served().name);
  throw ApiError(404,
                 fmt::format("there is no model {}; there {} {}", in_quotes(name), names.size() == 1 ? "is" : "are",
                             fmt::join(names, ", ")),
                 "model", "model_not_found");
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
