#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jerboa::cpu {

/// Threads that process numbered tasks. They spin for a moment after each job, because the next kernel of a step comes
/// within microseconds, and then sleep. The result of a task must depend only on its number, so that results do not
/// depend on the number of threads.
class ThreadPool {
 public:
  /// `threads` counts the calling thread; 0: one per core.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(number, worker) once for each number below count, on the calling thread and the workers, and returns
  /// when all are done. `worker` is below size(), for scratch memory; the calling thread is worker 0. The first
  /// exception of a task is rethrown here, and tasks not yet begun are skipped. Not to be called from inside a task;
  /// calls from several threads take turns.
  void run(std::int64_t count, const std::function<void(std::int64_t number, int worker)>& task);

  /// The same on the calling thread alone, as worker 0: for work that takes less time than distributing it.
  void run_alone(std::int64_t count, const std::function<void(std::int64_t number, int worker)>& task);

 private:
  void work(int worker);
  void take_tasks(int worker);
  bool join_job(std::uint64_t& seen);
  void stop();

  std::vector<std::thread> workers_;
  std::mutex turn_;  ///< held by the thread whose job it is
  // The job: written only while no worker is inside one.
  const std::function<void(std::int64_t, int)>* task_ = nullptr;
  std::int64_t count_ = 0;
  std::exception_ptr error_;
  alignas(64) std::atomic<std::int64_t> next_{0};
  /// The job's number, whether it is open, and how many workers are inside it: one word, so that a worker either joins
  /// an open job, which then waits for it, or does not touch it. A worker that wakes late delays no one.
  alignas(64) std::atomic<std::uint64_t> state_{0};
  std::mutex mutex_;  ///< guards sleeping_, stop_, error_ and the publishing of a job
  std::condition_variable wake_;
  int sleeping_ = 0;
  bool stop_ = false;
};

}  // namespace jerboa::cpu
