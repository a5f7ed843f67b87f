#include "backend/cpu/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace jerboa::cpu {
namespace {

TEST(ThreadPool, EveryTaskRunsOnceAndWorkersAreBelowSize) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const int count : {0, 1, 2, 3, 100, 1000}) {
      std::vector<int> runs(static_cast<std::size_t>(count), 0);
      std::atomic<int> bad_workers{0};
      pool.run(count, [&](std::int64_t number, int worker) {
        ++runs[static_cast<std::size_t>(number)];
        if (worker < 0 || worker >= threads) ++bad_workers;
      });
      for (const int times : runs) EXPECT_EQ(times, 1);
      EXPECT_EQ(bad_workers, 0);
    }
  }
}

// Plain, unsynchronised memory is passed from job to job: a worker still inside an old job, or reading the next one's
// task, would be caught by ThreadSanitizer, and usually in the sums.
TEST(ThreadPool, ManySmallJobsOneAfterTheOther) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(8, 0);
  for (std::int64_t job = 0; job < 20000; ++job) {
    const auto count = static_cast<std::int64_t>(2 + job % 7);
    pool.run(count, [&values, job](std::int64_t number, int) { values[static_cast<std::size_t>(number)] += job; });
  }
  std::vector<std::int64_t> expected(8, 0);
  for (std::int64_t job = 0; job < 20000; ++job) {
    for (std::int64_t number = 0; number < 2 + job % 7; ++number) expected[static_cast<std::size_t>(number)] += job;
  }
  EXPECT_EQ(values, expected);
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::atomic<int> runs{0};
    pool.run(50, [&](std::int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 50);
  }
}

TEST(ThreadPool, SleepingWorkersAreWokenToShareTheWork) {
  ThreadPool pool(2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Each task waits for the other: one thread alone would never finish.
  std::atomic<int> arrived{0};
  pool.run(2, [&](std::int64_t, int) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, TheFirstExceptionIsThrownAndThePoolGoesOn) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      EXPECT_THROW(pool.run(20,
                            [](std::int64_t number, int) {
                              if (number % 5 == 3) throw std::runtime_error("task");
                            }),
                   std::runtime_error);
      std::atomic<int> runs{0};
      pool.run(20, [&](std::int64_t, int) { ++runs; });
      EXPECT_EQ(runs, 20);
    }
  }
}

TEST(ThreadPool, CallsFromSeveralThreadsTakeTurns) {
  ThreadPool pool(3);
  std::int64_t sum = 0;  // written by the jobs of both callers, from one task each
  std::vector<std::thread> callers;
  callers.reserve(2);
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&] {
      for (int job = 0; job < 500; ++job) {
        pool.run(4, [&](std::int64_t number, int) {
          if (number == 0) ++sum;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 1000);
}

TEST(ThreadPool, ComesAndGoes) {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(3);
    if (round % 2 == 0) pool.run(3, [](std::int64_t, int) {});
  }
}

}  // namespace
}  // namespace jerboa::cpu
