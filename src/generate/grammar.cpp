#include "generate/grammar.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <functional>
#include <queue>
#include <utf8proc.h>

namespace jerboa {
namespace {

constexpr std::size_t max_states = 400'000;
constexpr char32_t last_code_point = 0x10FFFF;

// Ranges are split so that within a part all encodings have the same length and each byte has an independent range.
constexpr std::array<char32_t, 4> length_limits = {0x7F, 0x7FF, 0xFFFF, last_code_point};

int encode(char32_t c, std::array<std::uint8_t, 4>& out) {
  if (c < 0x80) {
    out[0] = static_cast<std::uint8_t>(c);
    return 1;
  }
  const int size = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = size - 1; i > 0; --i, c >>= 6)
    out[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(0x80 | (c & 0x3F));
  constexpr std::array<std::uint8_t, 5> marks = {0, 0, 0xC0, 0xE0, 0xF0};
  out[0] = static_cast<std::uint8_t>(marks[static_cast<std::size_t>(size)] | c);
  return size;
}

}  // namespace

std::optional<std::u32string> characters_of(std::string_view text) {
  std::u32string characters;
  for (std::size_t i = 0; i < text.size();) {
    utf8proc_int32_t c = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                                       static_cast<utf8proc_ssize_t>(text.size() - i), &c);
    if (size <= 0) return std::nullopt;
    characters += static_cast<char32_t>(c);
    i += static_cast<std::size_t>(size);
  }
  return characters;
}

CodePoints normalize(CodePoints points) {
  std::sort(points.begin(), points.end());
  CodePoints out;
  for (const auto& [first, last] : points) {
    if (first > last) continue;
    if (!out.empty() && first <= out.back().second + 1)
      out.back().second = std::max(out.back().second, last);
    else
      out.emplace_back(first, last);
  }
  return out;
}

CodePoints complement(const CodePoints& points) {
  CodePoints excluded = points;
  excluded.emplace_back(0xD800, 0xDFFF);
  CodePoints out;
  char32_t next = 0;
  for (const auto& [first, last] : normalize(std::move(excluded))) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= last_code_point) out.emplace_back(next, last_code_point);
  return out;
}

CodePoints intersect(const CodePoints& a, const CodePoints& b) {
  CodePoints out;
  for (const auto& x : a)
    for (const auto& y : b)
      if (std::max(x.first, y.first) <= std::min(x.second, y.second))
        out.emplace_back(std::max(x.first, y.first), std::min(x.second, y.second));
  return normalize(std::move(out));
}

Grammar::Grammar() { nodes_.reserve(1024); }

State Grammar::add_state() {
  if (nodes_.size() >= max_states)
    throw ConstraintError(fmt::format(
        "the pattern or schema needs more than {} states; make its counts smaller, or leave out some of its "
        "alternatives, properties and constants",
        max_states));
  nodes_.emplace_back();
  return static_cast<State>(nodes_.size() - 1);
}

Grammar::Rule Grammar::add_rule() {
  const State start = add_state();
  const State end = add_state();
  at(end).end = true;
  return {start, end};
}

void Grammar::add_bytes(State from, State to, std::uint8_t first, std::uint8_t last) {
  at(from).bytes.push_back({first, last, to});
}

State Grammar::add_text(State from, std::string_view text) {
  for (const char c : text) {
    const State next = add_state();
    add_bytes(from, next, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c));
    from = next;
  }
  return from;
}

void Grammar::add_text(State from, State to, std::string_view text) { add_empty(add_text(from, text), to); }

void Grammar::add_utf8(State from, State to, char32_t first, char32_t last) {
  for (const char32_t limit : length_limits) {
    if (first <= limit && last > limit) {
      add_utf8(from, to, first, limit);
      return add_utf8(from, to, limit + 1, last);
    }
  }
  // The bytes after the first differing one must span all of 80–BF.
  for (int tail = 1; tail < 4; ++tail) {
    const char32_t mask = (char32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask) || first < 0x80) continue;
    if ((first & mask) != 0) {
      add_utf8(from, to, first, first | mask);
      return add_utf8(from, to, (first | mask) + 1, last);
    }
    if ((last & mask) != mask) {
      add_utf8(from, to, first, (last & ~mask) - 1);
      return add_utf8(from, to, last & ~mask, last);
    }
  }
  std::array<std::uint8_t, 4> low{}, high{};
  const int size = encode(first, low);
  encode(last, high);
  for (int i = 0; i < size; ++i) {
    const State next = i + 1 == size ? to : add_state();
    add_bytes(from, next, low[static_cast<std::size_t>(i)], high[static_cast<std::size_t>(i)]);
    from = next;
  }
}

void Grammar::add_characters(State from, State to, const CodePoints& set, Encoding encoding) {
  if (set.empty()) return;
  const bool escapes = encoding == Encoding::json_string &&
                       (set.front().first < 0x20 || !intersect(set, {{U'"', U'"'}, {U'\\', U'\\'}}).empty());
  if (set.back().second < 0x80 && !escapes) {
    for (const auto& [first, last] : set)
      add_bytes(from, to, static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
    return;
  }
  const auto [found, added] = sets_.try_emplace({set, encoding}, Rule{});
  if (added) {
    const Rule rule = add_rule();
    found->second = rule;
    CodePoints raw = intersect(set, complement({}));
    if (encoding == Encoding::json_string) {
      constexpr std::string_view named = "\"\\\b\f\n\r\t", names = "\"\\bfnrt";
      for (std::size_t i = 0; i < named.size(); ++i) {
        const auto c = static_cast<char32_t>(named[i]);
        if (!intersect(set, {{c, c}}).empty()) add_text(rule.start, rule.end, {std::array{'\\', names[i]}.data(), 2});
      }
      for (char32_t c = 0; c < 0x20; ++c)
        if (named.find(static_cast<char>(c)) == std::string_view::npos && !intersect(set, {{c, c}}).empty())
          add_text(rule.start, rule.end, fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
      raw = intersect(raw, {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, last_code_point}});
    }
    for (const auto& [first, last] : raw) add_utf8(rule.start, rule.end, first, last);
  }
  add_call(from, to, found->second);
}

// Knuth's generalisation of Dijkstra's algorithm: calls add the distance of the called rule. The nearest state is
// always settled next, so that each edge is visited once.
void Grammar::measure() {
  struct Use {
    State user, other;  // the other state that a call needs, or none
    std::int64_t bytes;
  };
  constexpr State none = -1;
  std::vector<std::vector<Use>> uses(nodes_.size());
  using Found = std::pair<std::int64_t, State>;
  std::priority_queue<Found, std::vector<Found>, std::greater<>> nearest;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const auto user = static_cast<State>(i);
    for (const ByteEdge& edge : nodes_[i].bytes) uses[static_cast<std::size_t>(edge.target)].push_back({user, none, 1});
    for (const State target : nodes_[i].empty) uses[static_cast<std::size_t>(target)].push_back({user, none, 0});
    for (const CallEdge& call : nodes_[i].calls) {
      uses[static_cast<std::size_t>(call.callee)].push_back({user, call.resume, 0});
      if (call.resume != call.callee) uses[static_cast<std::size_t>(call.resume)].push_back({user, call.callee, 0});
    }
    nodes_[i].distance = unreachable;
    if (nodes_[i].end) nearest.emplace(0, user);
  }
  while (!nearest.empty()) {
    const auto [distance, state] = nearest.top();
    nearest.pop();
    if (at(state).distance != unreachable) continue;
    at(state).distance = distance;
    for (const Use& use : uses[static_cast<std::size_t>(state)]) {
      const std::int64_t more = use.other == none ? use.bytes : at(use.other).distance;
      if (at(use.user).distance == unreachable && more < unreachable)
        nearest.emplace(std::min(unreachable - 1, distance + more), use.user);
    }
  }
}

void Grammar::finish(Rule root) {
  start_ = root.start;
  measure();
  const auto dead = [this](State state) { return at(state).distance >= unreachable; };
  if (dead(start_)) throw ConstraintError("nothing can match: the pattern or schema contradicts itself");
  for (Node& node : nodes_) {
    std::erase_if(node.bytes, [&](const ByteEdge& edge) { return dead(edge.target); });
    std::erase_if(node.empty, dead);
    std::erase_if(node.calls, [&](const CallEdge& call) { return dead(call.callee) || dead(call.resume); });
  }
  sets_.clear();
}

}  // namespace jerboa
