#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "generate/grammar.h"

namespace jerboa {

/// Runs a grammar over bytes as a deterministic automaton that is built lazily. A position is the set of all (state,
/// stack of states to resume) that the bytes so far can lead to; equal sets share one position, so that transitions are
/// computed once.
///
/// The cost is bounded at run time: next() throws TooManyPositions if it would keep more than max_positions, and
/// ConstraintError if more than max_work steps follow a call of start_work(), or if all steps exceed an allowance that
/// grows with the text.
class Matcher {
 public:
  using Position = std::int32_t;
  static constexpr Position dead = -1;
  static constexpr std::size_t max_positions = 30'000;  // about 1 KB each
  static constexpr std::size_t max_work = 10'000'000;   // about a second
  static constexpr std::size_t first_allowance = 15'000'000, allowance_per_token = 1'500'000;

  class TooManyPositions : public ConstraintError {
   public:
    TooManyPositions();
  };

  explicit Matcher(std::shared_ptr<const Grammar> grammar);
  /// A matcher that keeps only one position of another, besides the start. Transitions from there are recomputed.
  static std::pair<Matcher, Position> continued(const Matcher& other, Position position);

  void start_work() {
    spent_ += std::exchange(work_, 0);
    limit_ = std::min(max_work, allowance_ - std::min(allowance_, spent_));
  }
  /// The text has grown by a token.
  void extend_allowance() { allowance_ += allowance_per_token; }

  Position start() const { return start_; }
  Position next(Position from, std::uint8_t byte) {
    const Position known = positions_[static_cast<std::size_t>(from)].next[byte];
    return known != unknown ? known : compute(from, byte);
  }
  bool complete(Position position) const { return positions_[static_cast<std::size_t>(position)].complete; }
  /// The fewest bytes that complete the text.
  std::int64_t distance(Position position) const { return positions_[static_cast<std::size_t>(position)].distance; }
  std::size_t size() const { return positions_.size(); }

 private:
  static constexpr Position unknown = -2;
  using Frame = std::int32_t;
  static constexpr Frame bottom = -1;

  // A state, and the frame that resumes when its automaton ends. Equal frames are shared.
  struct StackFrame {
    State state;
    Frame below;
    std::int64_t distance;
  };
  struct Reached {
    std::vector<Frame> frames;  // those with byte edges, ascending
    bool complete = false;
    std::int64_t distance = Grammar::unreachable;
    std::vector<Position> next = std::vector<Position>(256, unknown);
  };

  Frame frame(State state, Frame below);
  [[noreturn]] void refuse() const;
  void close(std::vector<Frame>& pending, Reached& out);
  Frame adopt(const Matcher& other, Frame frame, std::unordered_map<Frame, Frame>& known);
  Position intern(Reached reached);
  Position compute(Position from, std::uint8_t byte);

  std::shared_ptr<const Grammar> grammar_;
  std::vector<StackFrame> frames_;
  std::unordered_map<std::uint64_t, Frame> frame_of_;
  std::vector<Reached> positions_;
  std::unordered_multimap<std::uint64_t, Position> position_of_;
  std::vector<std::uint32_t> visited_;  // by frame: the closure that saw it last
  std::uint32_t closure_ = 0;
  std::size_t work_ = 0, limit_ = max_work;              // since start_work()
  std::size_t spent_ = 0, allowance_ = first_allowance;  // before start_work(), and in total
  Position start_ = 0;
};

}  // namespace jerboa
