#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <jerboa/language/options.h>
#include <jerboa/language/statistics.h>

#include "server/task.h"

namespace jerboa::server {

/// The memory that all models share. A model waits to be loaded until idle ones have made room.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes) : bytes_(bytes) {}  ///< 0: unlimited

  bool is_limited() const { return bytes_ > 0; }
  std::int64_t bytes() const { return bytes_; }
  /// Asks idle models to unload until there is room; returns false if `gives_up` becomes true first.
  bool take(std::int64_t bytes, const std::function<bool()>& ask_one_to_go, const std::function<bool()>& gives_up);
  void give_back(std::int64_t bytes);

 private:
  std::int64_t bytes_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct WorkerOptions {
  LanguageModelOptions model = {};
  int queue = 256;          ///< limit of unfinished requests: 429
  double seconds = 600;     ///< limit of a request's waiting time: 504
  double idle_seconds = 0;  ///< after which an unused model is unloaded; 0: never
  bool logs_loading = false;
};

/// A model and the thread that runs it, which starts with the model's first request. Any thread may call anything.
class ModelWorker {
 public:
  ModelWorker(ServedModel served, WorkerOptions options, MemoryBudget& budget, std::function<bool()> make_room);
  ~ModelWorker();
  ModelWorker(const ModelWorker&) = delete;
  ModelWorker& operator=(const ModelWorker&) = delete;

  /// Ends the thread, whatever it is doing. After that, nothing is computed, loaded or unloaded.
  void stop();
  const ServedModel& served() const { return served_; }
  /// Loads the model ahead of its first request, unless it is loaded; throws if that fails.
  void load();
  /// Throws ApiError 429 if too many requests are unfinished, and 503 once the worker is stopped.
  void submit(std::shared_ptr<Task> task);
  /// If the model is idle, unloads it soon.
  bool ask_to_unload();
  bool is_idle() const;
  /// Answers requests that have waited too long, for the model to be loaded or for a step to end, and unloads the model
  /// if it was idle for too long. To be called regularly.
  void look_after();

  struct Status {
    bool is_loaded = false;
    int unfinished = 0;
    std::int64_t context = 0, parameters = 0;
    std::optional<language::Statistics> statistics = {};
  };
  Status status() const;
  double last_used() const { return last_used_; }

 private:
  using Tasks = std::vector<std::shared_ptr<Task>>;

  void run();
  bool wait_for_work();
  bool load_for_tasks();
  void start_tasks();
  void pump_tasks();
  void cancel_calls(Task& task);
  void forget_ended_calls();
  void rest();
  void ensure_loaded(const std::function<bool()>& gives_up);
  void reserve(std::int64_t bytes, const std::function<bool()>& gives_up);
  void unload();
  void start_thread();
  Tasks take_arrived();
  void fail_all(const Tasks& tasks, const ApiError& error);

  ServedModel served_;
  WorkerOptions options_;
  MemoryBudget& budget_;
  std::function<bool()> make_room_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Tasks arrived_;
  std::size_t unfinished_ = 0;
  bool is_stopped_ = false, is_unloading_ = false, is_loaded_at_start_ = false;
  std::shared_ptr<LoadedModel> model_;
  std::atomic<double> last_used_ = 0;

  Tasks active_;                                           // used by the model's thread only
  std::vector<std::unique_ptr<RunningCalls>> left_calls_;  // likewise: cancelled calls that have not ended yet
  std::int64_t taken_bytes_ = 0;
  std::thread thread_;
};

}  // namespace jerboa::server
