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

/// The memory that models may take together. A model that is to be loaded waits until idle ones have made room.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::int64_t bytes) : bytes_(bytes) {}  ///< 0: any amount

  bool is_limited() const { return bytes_ > 0; }
  std::int64_t bytes() const { return bytes_; }
  /// Asks idle models to go until there is room; false if `gives_up` becomes true first.
  bool take(std::int64_t bytes, const std::function<bool()>& ask_one_to_go, const std::function<bool()>& gives_up);
  void give_back(std::int64_t bytes);

 private:
  std::int64_t bytes_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

struct WorkerOptions {
  LanguageModelOptions model = {};
  int queue = 256;          ///< the most unfinished requests: 429
  double seconds = 600;     ///< that a request may wait: 504
  double idle_seconds = 0;  ///< after which a model that nobody asks goes; 0: never
  bool logs_loading = false;
};

/// One model and the thread that computes its texts, which begins when the model is first asked for. Any thread may
/// call anything.
class ModelWorker {
 public:
  ModelWorker(ServedModel served, WorkerOptions options, MemoryBudget& budget, std::function<bool()> make_room);
  ~ModelWorker();
  ModelWorker(const ModelWorker&) = delete;
  ModelWorker& operator=(const ModelWorker&) = delete;

  /// Ends the thread, and whatever it is doing. Nothing is computed, loaded or unloaded after that.
  void stop();
  const ServedModel& served() const { return served_; }
  /// Loads the model, if it is not loaded, before there is work; throws what went wrong.
  void load();
  /// Throws ApiError 429 if too many requests are unfinished, and 503 once it is stopped.
  void submit(std::shared_ptr<Task> task);
  /// If it is idle, gives the model's memory back soon.
  bool ask_to_unload();
  bool is_idle() const;
  /// Answers requests that waited for too long, for the model to be loaded or for a step to end, and unloads a model
  /// that was idle for too long. To be called now and then.
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

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  Tasks arrived_;
  std::size_t unfinished_ = 0;
  bool is_stopped_ = false, is_unloading_ = false, is_loaded_at_start_ = false;
  std::shared_ptr<LoadedModel> model_;
  std::atomic<double> last_used_ = 0;

  Tasks active_;                                           // of the thread alone
  std::vector<std::unique_ptr<RunningCalls>> left_calls_;  // the same: cancelled, and not ended yet
  std::int64_t taken_bytes_ = 0;
  std::thread thread_;
};

}  // namespace jerboa::server
