#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace jerboa::detail {

/// Calls work(first, end) for parts of [0, count) of at least `least`, on as many threads as there are cores, each of
/// which takes the next part when it finishes one. The first exception is rethrown here, and parts not yet begun are
/// skipped.
template <class Work>
void in_parallel(std::int64_t count, [[maybe_unused]] std::int64_t least, const Work& work) {
#ifdef __EMSCRIPTEN__  // there are no threads
  work(std::int64_t{0}, count);
#else
  constexpr std::int64_t parts_per_thread = 8;  // several, so that a thread that is slowed down does not delay all
  const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::int64_t parts = std::clamp<std::int64_t>(count / least, 1, cores * parts_per_thread);
  std::atomic<std::int64_t> next = 0;
  std::atomic_flag has_failed;
  std::exception_ptr error;
  const auto take_parts = [&] {
    for (std::int64_t part = next++; part < parts; part = next++) try {
        work(count * part / parts, count * (part + 1) / parts);
      } catch (...) {
        if (!has_failed.test_and_set()) error = std::current_exception();
        next = parts;
      }
  };
  const std::int64_t helpers = std::min(parts, cores) - 1;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(helpers));  // before any runs: a later failure would lose them
  try {
    while (std::ssize(threads) < helpers) threads.emplace_back(take_parts);
  } catch (const std::system_error&) {  // no more threads, or none at all
  }
  take_parts();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
#endif
}

}  // namespace jerboa::detail
