#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
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

  /// Asks idle models to go until there is room; false if `is_stopped` becomes true first.
  bool take(std::int64_t bytes, const std::function<bool()>& ask_one_to_go, const std::function<bool()>& is_stopped);
  void give_back(std::int64_t bytes);

 private:
  std::int64_t bytes_, taken_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// One model and the thread that computes its texts, which begins when the model is first asked for. Any thread may
/// call anything.
class ModelWorker {
 public:
  ModelWorker(ServedModel served, LanguageModelOptions options, int queue, MemoryBudget& budget,
              std::function<bool()> make_room);
  ~ModelWorker();
  ModelWorker(const ModelWorker&) = delete;
  ModelWorker& operator=(const ModelWorker&) = delete;

  const ServedModel& served() const { return served_; }
  /// Loads the model, if it is not loaded, before there is work; throws what went wrong.
  void load();
  /// Throws ApiError 429 if too many requests are unfinished.
  void submit(std::shared_ptr<Task> task);
  /// If it is idle, gives the model's memory back soon.
  bool ask_to_unload();
  bool is_idle() const;

  struct Status {
    bool is_loaded = false;
    int unfinished = 0;
    std::int64_t context = 0, parameters = 0;
    std::optional<language::Statistics> statistics = {};
  };
  Status status() const;
  double last_used() const { return last_used_; }

 private:
  void run();
  void wait_for_work();
  void start_tasks();
  void pump_tasks();
  void ensure_loaded();
  void unload();
  void start_thread();
  std::int64_t expected_bytes() const;

  ServedModel served_;
  LanguageModelOptions options_;
  std::size_t queue_;
  MemoryBudget& budget_;
  std::function<bool()> make_room_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> arrived_;
  std::size_t unfinished_ = 0;
  bool is_stopped_ = false, is_unloading_ = false;
  std::shared_ptr<LoadedModel> model_;
  std::atomic<double> last_used_ = 0;

  std::vector<std::shared_ptr<Task>> active_;  // of the thread alone
  std::int64_t taken_bytes_ = 0, known_bytes_ = 0;
  std::thread thread_;
};

}  // namespace jerboa::server
