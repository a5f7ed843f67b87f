#include "generate/regex.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <optional>
#include <utf8proc.h>

#include "base/parse_json.h"

namespace jerboa {
namespace {

constexpr int max_nesting = 100;
constexpr std::int64_t max_repeats = 10'000, max_nested_repeats = 200'000;
constexpr std::int64_t unbounded = -1;
constexpr std::size_t max_ranges = 1'000'000;  // of 8 bytes

const CodePoints digits = {{'0', '9'}};
const CodePoints words = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CodePoints spaces = {{0x09, 0x0D},     {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                           {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CodePoints line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/// The characters of each general category, except surrogates; computed once for all patterns.
const std::map<std::string, CodePoints>& categories() {
  static const std::map<std::string, CodePoints> table = [] {
    std::map<std::string, CodePoints> made;
    for (utf8proc_int32_t c = 0; c <= 0x10FFFF; ++c) {
      const char* category = utf8proc_category_string(c);
      CodePoints& members = made[category];
      if (!members.empty() && members.back().second + 1 == static_cast<char32_t>(c))
        ++members.back().second;
      else
        members.emplace_back(c, c);
    }
    made.erase("Cs");
    return made;
  }();
  return table;
}

struct Counts {
  std::int64_t min = 0, max = unbounded;
};

struct Node {
  enum class Kind { characters, sequence, choice, repeat } kind = Kind::sequence;
  CodePoints set;
  std::vector<std::unique_ptr<Node>> parts;
  Counts counts;
  bool is_nullable = false;  // matches the empty text
  std::int64_t open = 1;     // how many repetitions in it may be under way at once, at least
};
using NodePtr = std::unique_ptr<Node>;

// A node that may match the empty text may be repeated any number of times before a character, so the repetitions
// inside it are open for each of its own.
NodePtr finished(NodePtr node) {
  const auto is_nullable = [](const NodePtr& part) { return part->is_nullable; };
  const bool all = std::all_of(node->parts.begin(), node->parts.end(), is_nullable);
  for (const NodePtr& part : node->parts) node->open = std::max(node->open, part->open);
  switch (node->kind) {
    case Node::Kind::characters: break;
    case Node::Kind::sequence: node->is_nullable = all; break;
    case Node::Kind::choice:
      node->is_nullable = std::any_of(node->parts.begin(), node->parts.end(), is_nullable);
      break;
    case Node::Kind::repeat: {
      const std::int64_t repeats = std::max({std::int64_t{1}, node->counts.min, node->counts.max});
      node->open = all && node->counts.max != unbounded ? repeats * node->open : std::max(repeats, node->open);
      node->is_nullable = all || node->counts.min == 0;
      break;
    }
  }
  return node;
}

// (x{a,b}){c,d} as x{ca,db}. That is the same unless there are gaps between what k and k + 1 repetitions match, and
// spares the matcher all the ways to divide a text among the outer repetitions. There are none if b is a, so that such
// counts stay as they are and need few states.
std::optional<Counts> product(const Counts& inner, const Counts& outer) {
  if (inner.min == inner.max) return std::nullopt;
  const bool is_once = outer.min == outer.max;
  const bool has_gap = inner.max == unbounded ? outer.min == 0 && inner.min > 1
                                              : (outer.min + 1) * inner.min > outer.min * inner.max + 1;
  if (!is_once && has_gap) return std::nullopt;
  const bool is_bounded = outer.max == 0 || (inner.max != unbounded && outer.max != unbounded);
  return Counts{outer.min * inner.min, is_bounded ? outer.max * inner.max : unbounded};
}

// The repetition that a node is, in any number of groups; or null.
Node* lone_repeat(Node* node) {
  while (node->kind != Node::Kind::repeat && node->parts.size() == 1) node = node->parts.front().get();
  return node->kind == Node::Kind::repeat ? node : nullptr;
}

// One alternative of the pattern, and whether it begins with ^ and ends with $.
struct Branch {
  NodePtr body;
  bool from_start = false, to_end = false;
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {
    std::optional<std::u32string> characters = characters_of(pattern);
    if (!characters) fail("is not UTF-8");
    text_ = std::move(*characters);
  }

  std::vector<Branch> run() {
    std::vector<Branch> out;
    do {
      Branch branch;
      branch.from_start = take(U'^');
      branch.body = sequence(0, &branch.to_end);
      out.push_back(std::move(branch));
    } while (take(U'|'));
    if (!done()) fail("has an unmatched ')'");
    return out;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw ConstraintError(fmt::format("the pattern /{}/ {}", printable_line(shortened(pattern_, 200)), what));
  }
  bool done() const { return position_ >= text_.size(); }
  char32_t peek() const { return done() ? U'\0' : text_[position_]; }
  bool take(char32_t c) { return !done() && text_[position_] == c && (++position_, true); }
  char32_t next() {
    if (done()) fail("ends too early");
    return text_[position_++];
  }

  NodePtr characters(CodePoints set) {
    ranges_ += set.size();
    if (ranges_ > max_ranges)
      fail(fmt::format("has classes of more than {} ranges in all; use fewer of them", max_ranges));
    auto out = std::make_unique<Node>();
    out->kind = Node::Kind::characters;
    out->set = std::move(set);
    return out;
  }

  NodePtr choice(int depth) {
    auto out = std::make_unique<Node>();
    out->kind = Node::Kind::choice;
    do {
      out->parts.push_back(sequence(depth, nullptr));
    } while (take(U'|'));
    return finished(std::move(out));
  }

  // `to_end` is set if the sequence is at top level and ends in $.
  NodePtr sequence(int depth, bool* to_end) {
    auto out = std::make_unique<Node>();
    while (!done() && peek() != U'|' && peek() != U')') {
      if (to_end != nullptr && peek() == U'$' && (position_ + 1 == text_.size() || text_[position_ + 1] == U'|')) {
        ++position_;
        *to_end = true;
        break;
      }
      out->parts.push_back(repeated(depth));
    }
    return finished(std::move(out));
  }

  NodePtr repeated(int depth) {
    NodePtr body = atom(depth);
    for (;;) {
      Counts counts;
      if (take(U'*')) {
      } else if (take(U'+')) {
        counts.min = 1;
      } else if (take(U'?')) {
        counts.max = 1;
      } else if (!take_counts(counts)) {
        return body;
      }
      take(U'?');  // lazy or greedy: the same texts match
      if (++depth > max_nesting) fail("is nested too deeply");
      body = repeat(std::move(body), counts);
    }
  }

  NodePtr repeat(NodePtr body, Counts counts) {
    if (Node* inner = lone_repeat(body.get()))
      if (const auto both = product(inner->counts, counts)) {
        counts = *both;
        NodePtr repeated = std::move(inner->parts.front());
        body = std::move(repeated);
      }
    auto out = std::make_unique<Node>();
    out->kind = Node::Kind::repeat;
    out->counts = counts;
    out->parts.push_back(std::move(body));
    out = finished(std::move(out));
    if (out->open > max_nested_repeats)
      fail(fmt::format("has nested counts of more than {} repetitions in all; make them smaller", max_nested_repeats));
    return out;
  }

  std::optional<std::int64_t> number() {
    if (peek() < U'0' || peek() > U'9') return std::nullopt;
    std::int64_t value = 0;
    while (peek() >= U'0' && peek() <= U'9') {
      value = value * 10 + static_cast<std::int64_t>(next() - U'0');
      if (value > max_repeats) fail(fmt::format("repeats more than {} times", max_repeats));
    }
    return value;
  }

  // {2} {2,} {2,5}; any other brace is itself
  bool take_counts(Counts& counts) {
    const std::size_t start = position_;
    if (!take(U'{')) return false;
    const auto first = number();
    if (first) {
      counts.min = counts.max = *first;
      if (take(U',')) counts.max = number().value_or(unbounded);
      if (take(U'}')) {
        if (counts.max != unbounded && counts.max < counts.min) fail("has a count whose end is before its start");
        return true;
      }
    }
    position_ = start;
    return false;
  }

  NodePtr atom(int depth) {
    if (depth > max_nesting) fail("is nested too deeply");
    const char32_t c = next();
    switch (c) {
      case U'(': return group(depth);
      case U'[': return characters(char_class());
      case U'.': return characters(complement(line_ends));
      case U'\\': return characters(escape(false));
      case U'^':
      case U'$':
        fail(fmt::format("has a '{}' inside: it is allowed only at the ends of the pattern or of its alternatives",
                         static_cast<char>(c)));
      case U'*':
      case U'+':
      case U'?': fail(fmt::format("has a '{}' with nothing to repeat", static_cast<char>(c)));
      default: return characters({{c, c}});
    }
  }

  NodePtr group(int depth) {
    if (take(U'?')) {
      const char32_t kind = next();
      if (kind == U'=' || kind == U'!' || (kind == U'<' && (peek() == U'=' || peek() == U'!')))
        fail("has a look-around, which is not supported");
      if (kind == U'<') {
        while (next() != U'>') {
        }
      } else if (kind != U':') {
        fail("has a group of an unknown kind");
      }
    }
    NodePtr body = choice(depth + 1);
    if (!take(U')')) fail("has a group that is not closed");
    return body;
  }

  CodePoints char_class() {
    const bool negated = take(U'^');
    CodePoints set;
    while (!take(U']')) {
      const CodePoints first = class_item();
      if (peek() == U'-' && position_ + 1 < text_.size() && text_[position_ + 1] != U']') {
        ++position_;
        const CodePoints last = class_item();
        const bool single = first.size() == 1 && first[0].first == first[0].second && last.size() == 1 &&
                            last[0].first == last[0].second;
        if (!single || first[0].first > last[0].first) fail("has a malformed range in a class");
        set.emplace_back(first[0].first, last[0].first);
      } else {
        set.insert(set.end(), first.begin(), first.end());
      }
    }
    return negated ? complement(set) : intersect(normalize(std::move(set)), complement({}));
  }

  CodePoints class_item() {
    const char32_t c = next();
    if (c == U'\\') return escape(true);
    return {{c, c}};
  }

  char32_t hex(int count) {
    char32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const char32_t c = next();
      const bool letter = (c >= U'a' && c <= U'f') || (c >= U'A' && c <= U'F');
      if (!letter && !(c >= U'0' && c <= U'9')) fail("has a malformed escape");
      value = value * 16 + (letter ? (c | 0x20) - U'a' + 10 : c - U'0');
    }
    return value;
  }

  CodePoints escape(bool in_class) {
    const char32_t c = next();
    switch (c) {
      case U'd': return digits;
      case U'D': return complement(digits);
      case U'w': return words;
      case U'W': return complement(words);
      case U's': return spaces;
      case U'S': return complement(spaces);
      case U'n': return {{'\n', '\n'}};
      case U'r': return {{'\r', '\r'}};
      case U't': return {{'\t', '\t'}};
      case U'f': return {{'\f', '\f'}};
      case U'v': return {{'\v', '\v'}};
      case U'0': return {{0, 0}};
      case U'p':
      case U'P': return property(c == U'P');
      case U'x':
      case U'u': {
        char32_t value = 0;
        if (c == U'u' && take(U'{')) {
          while (!take(U'}') && value <= 0x10FFFF) value = value * 16 + hex(1);
        } else {
          value = hex(c == U'x' ? 2 : 4);
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
          fail("has an escape that is not a valid character");
        return {{value, value}};
      }
      default: break;
    }
    if (c == U'b' && in_class) return {{'\b', '\b'}};
    if (c == U'b' || c == U'B') fail("has a word boundary, which is not supported");
    if (c >= U'1' && c <= U'9') fail("has a back-reference, which is not supported");
    if ((c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z'))
      fail(fmt::format("has the unknown escape '\\{}'", static_cast<char>(c)));
    return {{c, c}};
  }

  // \p{L}, \p{Lu}: a general category or a group of them.
  CodePoints property(bool negated) {
    std::string name;
    if (!take(U'{')) fail("has a \\p without a category");
    while (!take(U'}')) {
      const char32_t c = next();
      if (c >= 0x80 || name.size() > 30) fail("has an unknown category");
      name += static_cast<char>(c);
    }
    CodePoints out;
    for (const auto& [category, members] : categories())
      if (category.starts_with(name)) out.insert(out.end(), members.begin(), members.end());
    if (out.empty() || name.empty()) fail(fmt::format("has the unknown category '{}'", name));
    return negated ? complement(out) : normalize(std::move(out));
  }

  std::string_view pattern_;
  std::u32string text_;
  std::size_t position_ = 0;
  std::size_t ranges_ = 0;  // in all classes so far
};

class Emitter {
 public:
  Emitter(Grammar& grammar, Encoding encoding) : grammar_(grammar), encoding_(encoding) {}

  void emit(const Node& node, State from, State to) {
    switch (node.kind) {
      case Node::Kind::characters: grammar_.add_characters(from, to, node.set, encoding_); break;
      case Node::Kind::sequence: {
        for (const NodePtr& part : node.parts) {
          const State next = grammar_.add_state();
          emit(*part, from, next);
          from = next;
        }
        grammar_.add_empty(from, to);
        break;
      }
      case Node::Kind::choice:
        for (const NodePtr& part : node.parts) emit(*part, from, to);
        break;
      case Node::Kind::repeat: repeat(node, from, to); break;
    }
  }

  void any_text(State at) { grammar_.add_characters(at, at, complement({}), encoding_); }

 private:
  // The body is a separate automaton, called once per repetition: a count costs one state per repetition, whatever it
  // repeats.
  void repeat(const Node& node, State from, State to) {
    const Node& body = *node.parts.front();
    const Grammar::Rule rule = grammar_.add_rule();
    emit(body, rule.start, rule.end);
    for (std::int64_t i = 0; i < node.counts.min; ++i) {
      const State next = grammar_.add_state();
      grammar_.add_call(from, next, rule);
      from = next;
    }
    if (node.counts.max == unbounded) {
      const State loop = grammar_.add_state();
      grammar_.add_empty(from, loop);
      grammar_.add_call(loop, loop, rule);
      grammar_.add_empty(loop, to);
      return;
    }
    for (std::int64_t i = node.counts.min; i < node.counts.max; ++i) {
      const State next = grammar_.add_state();
      grammar_.add_empty(from, to);
      grammar_.add_call(from, next, rule);
      from = next;
    }
    grammar_.add_empty(from, to);
  }

  Grammar& grammar_;
  Encoding encoding_;
};

}  // namespace

void add_regex(Grammar& grammar, State from, State to, std::string_view pattern, Encoding encoding, bool search) {
  Emitter emitter(grammar, encoding);
  for (const Branch& branch : Parser(pattern).run()) {
    const State begin = grammar.add_state(), end = grammar.add_state();
    grammar.add_empty(from, begin);
    if (search && !branch.from_start) emitter.any_text(begin);
    if (search && !branch.to_end) emitter.any_text(end);
    emitter.emit(*branch.body, begin, end);
    grammar.add_empty(end, to);
  }
}

std::shared_ptr<const Grammar> compile_regex(std::string_view pattern) {
  auto grammar = std::make_shared<Grammar>();
  const Grammar::Rule root = grammar->add_rule();
  add_regex(*grammar, root.start, root.end, pattern, Encoding::plain, false);
  grammar->finish(root);
  return grammar;
}

}  // namespace jerboa
