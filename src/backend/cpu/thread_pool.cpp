#include "backend/cpu/thread_pool.h"

#include <algorithm>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace jerboa::cpu {
namespace {

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

// About 50 microseconds: longer than the gap between two kernels, far shorter than a pause that a person notices.
constexpr int spins_before_sleep = 2000;

constexpr std::uint64_t inside_mask = 0xFFFF;  // workers inside the job
constexpr std::uint64_t open_bit = 0x10000;
constexpr std::uint64_t job_step = 0x20000;
constexpr int most_threads = 0xFFFF;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads = std::min(threads, most_threads);
  try {
    for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    state_.fetch_add(job_step, std::memory_order_release);  // a job that is never open: wakes spinning workers
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_tasks(int worker) {
  try {
    for (std::int64_t number = next_.fetch_add(1, std::memory_order_relaxed); number < count_;
         number = next_.fetch_add(1, std::memory_order_relaxed)) {
      (*task_)(number, worker);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_.store(count_, std::memory_order_relaxed);
  }
}

void ThreadPool::run_alone(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  const std::lock_guard turn(turn_);
  for (std::int64_t number = 0; number < count; ++number) task(number, 0);
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) return run_alone(count, task);
  const std::lock_guard turn(turn_);
  task_ = &task;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    state_.fetch_add(job_step | open_bit, std::memory_order_release);
    wake = sleeping_ > 0;
  }
  if (wake) wake_.notify_all();
  take_tasks(0);
  state_.fetch_and(~open_bit, std::memory_order_relaxed);
  for (int spins = 0; (state_.load(std::memory_order_acquire) & inside_mask) != 0; ++spins) {
    if (spins < spins_before_sleep) {
      pause();
    } else {
      std::this_thread::yield();  // fewer cores than threads: the worker needs this one
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Whether the worker is now inside a job that it has not seen. `seen` becomes the newest job, open or not.
bool ThreadPool::join_job(std::uint64_t& seen) {
  std::uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & open_bit) != 0) {
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      seen = state / job_step;
      return true;
    }
  }
  seen = state / job_step;
  return false;
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  const auto news = [&] { return state_.load(std::memory_order_acquire) / job_step != seen; };
  for (;;) {
    for (int spins = 0; spins < spins_before_sleep && !news(); ++spins) pause();
    if (!news()) {
      std::unique_lock lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [&] { return stop_ || news(); });
      --sleeping_;
    }
    if (join_job(seen)) {
      take_tasks(worker);
      state_.fetch_sub(1, std::memory_order_release);
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (stop_) return;
  }
}

}  // namespace jerboa::cpu
