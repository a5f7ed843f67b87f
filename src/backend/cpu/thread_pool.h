#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jerboa::cpu {

/// Threads that share out numbered tasks. They spin for a moment after each job, because the next kernel of a step comes
/// within microseconds, and then sleep. What a task computes must depend on its number alone: then results do not depend
/// on the number of threads.
class ThreadPool {
 public:
  /// `threads` counts the calling thread; 0: one a core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(number, worker) once for each number below count, on the calling thread and the workers, and returns when
  /// all are done. `worker` is below size(), for scratch memory. The first exception of a task is thrown here.
  /// Not to be called from inside a task.
  void run(std::int64_t count, const std::function<void(std::int64_t number, int worker)>& task);

 private:
  void work(int worker);
  void take_tasks(int worker);

  std::vector<std::thread> workers_;
  const std::function<void(std::int64_t, int)>* task_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<std::uint64_t> job_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  int sleeping_ = 0;
  std::exception_ptr error_;
};

}  // namespace jerboa::cpu
