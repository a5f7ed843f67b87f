#include <fmt/format.h>

#include <jerboa/base/error.h>
#include <jerboa/serving/state_slots.h>

namespace jerboa::serving {

StateSlots::StateSlots(int slots) {
  if (slots < 0) throw UsageError(fmt::format("there cannot be {} state slots", slots));
  used_.resize(static_cast<std::size_t>(slots));
  for (std::int32_t slot = slots; slot-- > 0;) free_.push_back(slot);
}

std::optional<std::int32_t> StateSlots::allocate() {
  if (free_.empty()) return std::nullopt;
  const std::int32_t slot = free_.back();
  free_.pop_back();
  used_[static_cast<std::size_t>(slot)] = true;
  return slot;
}

void StateSlots::release(std::int32_t slot) {
  if (slot < 0 || slot >= slots() || !used_[static_cast<std::size_t>(slot)])
    throw UsageError(fmt::format("state slot {} of {} is not in use", slot, slots()));
  used_[static_cast<std::size_t>(slot)] = false;
  free_.push_back(slot);
}

StateSlot& StateSlot::operator=(StateSlot&& other) noexcept {
  if (this == &other) return *this;
  reset();
  slots_ = other.slots_;
  slot_ = std::exchange(other.slot_, no_slot);
  return *this;
}

void StateSlot::reset() {
  if (slot_ != no_slot) slots_->release(std::exchange(slot_, no_slot));
}

StateTrack::StateTrack(StateSlot live, std::int64_t position, std::int32_t from, std::vector<SlotCopy>& copies)
    : live_(std::move(live)), position_(position) {
  if (from != no_slot) copies.push_back({from, live_.number()});
}

void StateTrack::snapshot(StateSlot slot, std::vector<SlotCopy>& copies) {
  copies.push_back({live_.number(), slot.number()});
  snapshots_.push_back({position_, std::move(slot)});
}

std::optional<std::int64_t> StateTrack::rewind(std::int64_t position, std::vector<SlotCopy>& copies) {
  while (!snapshots_.empty() && snapshots_.back().position > position) snapshots_.pop_back();
  if (snapshots_.empty()) return std::nullopt;
  position_ = snapshots_.back().position;
  copies.push_back({snapshots_.back().slot.number(), live_.number()});
  return position_;
}

}  // namespace jerboa::serving
