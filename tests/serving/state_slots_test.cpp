#include <gtest/gtest.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/state_slots.h>

#include "support/expect_error.h"

namespace jerboa::serving {
namespace {

using SlotCopies = std::vector<SlotCopy>;

StateSlot take(StateSlots& slots) { return {slots, slots.allocate().value()}; }

TEST(StateSlots, AreGivenOutOnceAndTakenBack) {
  StateSlots slots(2);
  EXPECT_EQ(slots.allocate(), 0);
  EXPECT_EQ(slots.allocate(), 1);
  EXPECT_EQ(slots.allocate(), std::nullopt);
  slots.release(0);
  EXPECT_EQ(slots.free_slots(), 1);
  jerboa::test::expect_error<UsageError>([&] { slots.release(0); }, "state slot 0 of 2 is not in use");
  jerboa::test::expect_error<UsageError>([] { StateSlots(-1); }, "-1 state slots");
}

TEST(StateTrack, StartsFromNothingOrFromASnapshot) {
  StateSlots slots(3);
  SlotCopies copies;
  const StateTrack fresh(take(slots), 0, no_slot, copies), continued(take(slots), 8, 2, copies);
  EXPECT_EQ(copies, (SlotCopies{{2, 1}}));
  EXPECT_EQ(fresh.position(), 0);
  EXPECT_EQ(continued.position(), 8);
}

TEST(StateTrack, GoesBackToTheLatestSnapshot) {
  StateSlots slots(4);
  SlotCopies copies;
  {
    StateTrack track(take(slots), 0, no_slot, copies);
    track.advance(3);
    track.snapshot(take(slots), copies);
    track.advance(4);
    track.snapshot(take(slots), copies);
    track.advance(2);
    EXPECT_EQ(track.position(), 9);
    copies.clear();
    EXPECT_EQ(track.rewind(8, copies), 7);
    EXPECT_EQ(copies, (SlotCopies{{2, 0}}));
    EXPECT_EQ(track.rewind(6, copies), 3);
    EXPECT_EQ(copies.back(), (SlotCopy{1, 0}));
    EXPECT_EQ(track.snapshots(), 1u);
    EXPECT_EQ(track.position(), 3);
    EXPECT_EQ(track.rewind(2, copies), std::nullopt);
    EXPECT_EQ(slots.used_slots(), 1);
  }
  EXPECT_EQ(slots.used_slots(), 0);
}

}  // namespace
}  // namespace jerboa::serving
