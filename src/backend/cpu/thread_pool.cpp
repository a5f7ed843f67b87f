#include "backend/cpu/thread_pool.h"

#include <algorithm>

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

// Some 50 microseconds: longer than the gap between two kernels, far shorter than a pause a person notices.
constexpr int spins_before_sleep = 2000;

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { work(worker); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::take_tasks(int worker) {
  try {
    for (std::int64_t number = next_.fetch_add(1); number < count_; number = next_.fetch_add(1)) (*task_)(number, worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = count_;
  }
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& task) {
  if (count <= 0) return;
  if (count == 1 || workers_.empty()) {
    for (std::int64_t number = 0; number < count; ++number) task(number, 0);
    return;
  }
  task_ = &task;
  count_ = count;
  next_ = 0;
  busy_ = static_cast<int>(workers_.size());
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    job_.fetch_add(1, std::memory_order_release);
    wake = sleeping_ > 0;
  }
  if (wake) wake_.notify_all();
  take_tasks(0);
  while (busy_.load(std::memory_order_acquire) > 0) pause();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    while (job_.load(std::memory_order_acquire) == seen && !stop_) {
      if (++spins < spins_before_sleep) {
        pause();
        continue;
      }
      std::unique_lock lock(mutex_);
      ++sleeping_;
      wake_.wait(lock, [&] { return job_ != seen || stop_; });
      --sleeping_;
    }
    if (stop_) return;
    seen = job_;
    take_tasks(worker);
    busy_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace jerboa::cpu
