#include <gtest/gtest.h>

#include "runtime/regression.h"
#include "support/expect_error.h"

// Entries that are compiled before they are added.
namespace jerboa {
namespace {

using test::expect_error;
using test::regression_batch;
using test::regression_forward;
using test::regression_step;

TEST(PreparedEntry, RunsLikeOneThatIsAddedAtOnce) {
  for (const Device& device : {Device::cpu(2), Device::reference()})
    for (const bool checked : {false, true}) {
      const SessionOptions options{.seed = 1, .check_finite = checked};
      Session at_once(device, options), prepared(device, options);
      at_once.add_entry("step", regression_step());
      const PreparedEntry entry = prepared.prepare_entry("step", regression_step());
      EXPECT_FALSE(prepared.has_entry("step"));
      EXPECT_TRUE(prepared.param_names().empty());
      prepared.add_entry(entry);
      for (Session* session : {&at_once, &prepared})
        for (int step = 0; step < 3; ++step) session->step(regression_batch());
      EXPECT_EQ(test::everything(prepared), test::everything(at_once)) << device.name() << " " << checked;
    }
}

TEST(PreparedEntry, IsRefusedLikeAnyOther) {
  Session session(Device::cpu(1));
  const PreparedEntry forward = session.prepare_entry("forward", regression_forward());
  session.add_entry(forward);
  expect_error<UsageError>([&] { session.add_entry(forward); }, "the session already has an entry forward");
  const PreparedEntry other = session.prepare_entry("other", trace([] { output("y", param_input("w", {4}) + 1); }));
  expect_error<UsageError>([&] { session.add_entry(other); }, "w");
  EXPECT_FALSE(session.has_entry("other"));
}

}  // namespace
}  // namespace jerboa
