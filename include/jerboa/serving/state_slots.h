#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace jerboa::serving {

/// A pending copy of the state in slot `from` to slot `to`, in every recurrent layer.
struct SlotCopy {
  std::int32_t from = 0, to = 0;

  friend bool operator==(const SlotCopy&, const SlotCopy&) = default;
};
inline constexpr std::int32_t no_slot = -1;

/// Slots for the states of recurrent layers: a running sequence has one that each step overwrites, and others hold
/// snapshots of it, because a state cannot be truncated as keys and values can.
class StateSlots {
 public:
  /// Throws UsageError if the number is negative.
  explicit StateSlots(int slots);
  StateSlots(const StateSlots&) = delete;
  StateSlots& operator=(const StateSlots&) = delete;

  /// A slot, or none if all are in use.
  std::optional<std::int32_t> allocate();
  void release(std::int32_t slot);

  int slots() const { return static_cast<int>(used_.size()); }
  int free_slots() const { return static_cast<int>(free_.size()); }
  int used_slots() const { return slots() - free_slots(); }

 private:
  std::vector<bool> used_;
  std::vector<std::int32_t> free_;
};

/// A slot that is released when it goes out of scope. The slots must outlive it.
class StateSlot {
 public:
  StateSlot() = default;
  StateSlot(StateSlots& slots, std::int32_t slot) : slots_(&slots), slot_(slot) {}
  StateSlot(StateSlot&& other) noexcept : slots_(other.slots_), slot_(std::exchange(other.slot_, no_slot)) {}
  StateSlot& operator=(StateSlot&& other) noexcept;
  ~StateSlot() { reset(); }

  void reset();
  explicit operator bool() const { return slot_ != no_slot; }
  std::int32_t number() const { return slot_; }

 private:
  StateSlots* slots_ = nullptr;
  std::int32_t slot_ = no_slot;
};

/// The state of one sequence and its snapshots. Every call that moves a state adds the copy to `copies`, which the host
/// makes before the next step, in list order.
class StateTrack {
 public:
  /// Starts at `position` with the state in slot `from`, or with no_slot at position 0, where layers start from zeros
  /// whatever the slot holds.
  StateTrack(StateSlot live, std::int64_t position, std::int32_t from, std::vector<SlotCopy>& copies);

  std::int32_t live() const { return live_.number(); }
  std::int64_t position() const { return position_; }
  /// The sequence's next step moves the state this far.
  void advance(std::int64_t positions) { position_ += positions; }
  /// Keeps the state at the current position in a slot.
  void snapshot(StateSlot slot, std::vector<SlotCopy>& copies);
  /// Goes back to the latest snapshot at or before a position, and returns its position: the tokens from there on must
  /// be recomputed. None if there is no such snapshot. Later snapshots are dropped.
  std::optional<std::int64_t> rewind(std::int64_t position, std::vector<SlotCopy>& copies);
  /// Drops every snapshot.
  void forget_snapshots() { snapshots_.clear(); }
  std::size_t snapshots() const { return snapshots_.size(); }

 private:
  struct Snapshot {
    std::int64_t position;
    StateSlot slot;
  };
  StateSlot live_;
  std::int64_t position_ = 0;
  std::vector<Snapshot> snapshots_;  // by position
};

}  // namespace jerboa::serving
