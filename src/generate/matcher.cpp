#include "generate/matcher.h"

#include <algorithm>
#include <fmt/core.h>

namespace jerboa {

Matcher::TooManyPositions::TooManyPositions()
    : ConstraintError(
          fmt::format("the pattern or schema needs more than {} states within one token; this happens if a part that "
                      "may begin anywhere is followed by a counted one, as in [^a]*a.{{20}}: reduce the count, or "
                      "change the part before it so that it can begin in only one place",
                      max_positions)) {}

Matcher::Matcher(std::shared_ptr<const Grammar> grammar) : grammar_(std::move(grammar)) {
  std::vector<Frame> pending = {frame(grammar_->start(), bottom)};
  Reached reached;
  close(pending, reached);
  start_ = intern(std::move(reached));
}

std::pair<Matcher, Matcher::Position> Matcher::continued(const Matcher& other, Position position) {
  Matcher fresh(other.grammar_);
  const Reached& old = other.positions_[static_cast<std::size_t>(position)];
  Reached reached;
  reached.complete = old.complete;
  reached.distance = old.distance;
  std::unordered_map<Frame, Frame> known;
  for (const Frame item : old.frames) reached.frames.push_back(fresh.adopt(other, item, known));
  std::sort(reached.frames.begin(), reached.frames.end());
  const Position here = fresh.intern(std::move(reached));
  fresh.spent_ = other.spent_ + other.work_;
  fresh.allowance_ = other.allowance_;
  return {std::move(fresh), here};
}

Matcher::Frame Matcher::adopt(const Matcher& other, Frame item, std::unordered_map<Frame, Frame>& known) {
  std::vector<Frame> above;
  Frame below = bottom;
  for (; item != bottom; item = other.frames_[static_cast<std::size_t>(item)].below) {
    if (const auto found = known.find(item); found != known.end()) {
      below = found->second;
      break;
    }
    above.push_back(item);
  }
  for (auto at = above.rbegin(); at != above.rend(); ++at) {
    below = frame(other.frames_[static_cast<std::size_t>(*at)].state, below);
    known.emplace(*at, below);
  }
  return below;
}

Matcher::Frame Matcher::frame(State state, Frame below) {
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(below)) << 32 |
                            static_cast<std::uint64_t>(static_cast<std::uint32_t>(state));
  const auto [found, added] = frame_of_.try_emplace(key, static_cast<Frame>(frames_.size()));
  if (added) {
    const std::int64_t rest = below == bottom ? 0 : frames_[static_cast<std::size_t>(below)].distance;
    frames_.push_back({state, below, (*grammar_)[state].distance + rest});
    visited_.push_back(0);
  }
  return found->second;
}

void Matcher::refuse() const {
  const std::string cost = limit_ == max_work ? fmt::format("one token takes more than {} steps", max_work)
                                              : fmt::format("the text so far takes more than {} steps", allowance_);
  throw ConstraintError(
      fmt::format("the pattern or schema is too ambiguous: {}; use fewer alternatives with a common beginning, or "
                  "smaller nested counts",
                  cost));
}

// Follows all edges that consume no byte: empty edges, calls, and returns at the end of an automaton.
void Matcher::close(std::vector<Frame>& pending, Reached& out) {
  ++closure_;
  while (!pending.empty()) {
    const Frame current = pending.back();
    pending.pop_back();
    if (std::exchange(visited_[static_cast<std::size_t>(current)], closure_) == closure_) continue;
    if (++work_ > limit_) refuse();
    const auto [state, below, distance] = frames_[static_cast<std::size_t>(current)];
    const Grammar::Node& node = (*grammar_)[state];
    if (!node.bytes.empty()) out.frames.push_back(current);
    for (const State target : node.empty) pending.push_back(frame(target, below));
    for (const Grammar::CallEdge& call : node.calls) {
      // A tail call leaves no frame, so tail recursion needs no stack.
      const Grammar::Node& resume = (*grammar_)[call.resume];
      const bool last = resume.end && resume.bytes.empty() && resume.empty.empty() && resume.calls.empty();
      pending.push_back(frame(call.callee, last ? below : frame(call.resume, below)));
    }
    out.distance = std::min(out.distance, distance);
    if (node.end) {
      if (below == bottom)
        out.complete = true;
      else
        pending.push_back(below);
    }
  }
  std::sort(out.frames.begin(), out.frames.end());
}

Matcher::Position Matcher::intern(Reached reached) {
  if (reached.frames.empty() && !reached.complete) return dead;
  std::uint64_t hash = reached.complete ? 1 : 0;
  for (const Frame item : reached.frames) {
    hash = (hash ^ static_cast<std::uint64_t>(item)) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  const auto [first, last] = position_of_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Reached& known = positions_[static_cast<std::size_t>(at->second)];
    if (known.complete == reached.complete && known.frames == reached.frames) return at->second;
  }
  if (positions_.size() >= max_positions) throw TooManyPositions();
  positions_.push_back(std::move(reached));
  const auto position = static_cast<Position>(positions_.size() - 1);
  position_of_.emplace(hash, position);
  return position;
}

Matcher::Position Matcher::compute(Position from, std::uint8_t byte) {
  std::vector<Frame> pending;
  for (const Frame item : positions_[static_cast<std::size_t>(from)].frames) {
    const auto [state, below, distance] = frames_[static_cast<std::size_t>(item)];
    for (const Grammar::ByteEdge& edge : (*grammar_)[state].bytes)
      if (byte >= edge.first && byte <= edge.last) pending.push_back(frame(edge.target, below));
  }
  Reached reached;
  if (!pending.empty()) close(pending, reached);
  const Position to = intern(std::move(reached));
  positions_[static_cast<std::size_t>(from)].next[byte] = to;
  return to;
}

}  // namespace jerboa
