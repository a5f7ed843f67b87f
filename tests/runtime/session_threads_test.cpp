#include <atomic>
#include <gtest/gtest.h>
#include <thread>

#include "runtime/regression.h"

// Calls from several threads are serialised. Under ThreadSanitizer, these show that nothing is accessed without a lock.
namespace jerboa {
namespace {

TEST(SessionThreads, StepsFromTwoThreadsAreAllCounted) {
  Session session = test::regression_session();
  constexpr int steps = 20;
  const auto train = [&] {
    for (int i = 0; i < steps; ++i) EXPECT_GE(session.step(test::regression_batch()).loss(), 0);
  };
  std::thread other(train);
  train();
  other.join();
  EXPECT_EQ(session.download_state("step").item(), 2 * steps);

  // Whatever the order, the same number of the same steps gives the same bits.
  Session alone = test::regression_session();
  for (int i = 0; i < 2 * steps; ++i) alone.step(test::regression_batch());
  EXPECT_EQ(test::everything(session), test::everything(alone));
}

TEST(SessionThreads, ASiblingReadsWhileTheOtherTrains) {
  Session session = test::regression_session();
  std::atomic<bool> done = false;
  std::thread reader([&] {
    Session forward = session.sibling();
    forward.add_entry("forward", test::regression_forward());
    while (!done) {
      const TensorMap params = forward.download_params();
      EXPECT_EQ(params.size(), 2u);
      EXPECT_EQ(forward.run("forward", {{"x", test::regression_batch().at("x")}}).get("output").size(), 4);
    }
  });
  for (int i = 0; i < 30; ++i) session.step(test::regression_batch());
  done = true;
  reader.join();
}

TEST(SessionThreads, EntriesAreAddedWhileOthersRun) {
  Session session = test::regression_session();
  std::thread adder([&] {
    for (int i = 0; i < 10; ++i) {
      const std::string name = "forward" + std::to_string(i);
      session.add_entry(name, test::regression_forward());
      EXPECT_TRUE(session.has_entry(name));
      EXPECT_GT(session.kernel_count(name), 0);
    }
  });
  for (int i = 0; i < 30; ++i) {
    session.step(test::regression_batch());
    EXPECT_EQ(session.graph("step").outputs.size(), 1u);
  }
  adder.join();
  EXPECT_TRUE(session.has_entry("forward9"));
}

TEST(SessionThreads, EntriesArePreparedWhileParametersAreUploaded) {
  for (const Device& device : {Device::cpu(2), Device::reference()}) {
    Session session(device);
    session.declare(test::regression_forward());
    std::vector<PreparedEntry> entries;
    std::thread preparer([&] {
      for (int i = 0; i < 10; ++i)
        entries.push_back(session.prepare_entry("forward" + std::to_string(i), test::regression_forward()));
    });
    HostTensor w({3}, {1, 2, 3}), b(DType::f32, Sizes{});
    b.set_number(0, 4);
    for (int i = 0; i < 100; ++i) session.upload_params({{"w", w}, {"b", b}});
    preparer.join();
    for (const PreparedEntry& entry : entries) session.add_entry(entry);
    EXPECT_EQ(session.run("forward9", {{"x", HostTensor({1, 3}, {1, 1, 1})}}).get("output").number(0), 10);
  }
}

}  // namespace
}  // namespace jerboa
