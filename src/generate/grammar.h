#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <jerboa/generate/constraint.h>

// A grammar over bytes: finite automata that call each other. A regular expression is one automaton; a JSON schema is
// one for each value, and recursion is a call. States from which no match can be completed are dropped when the grammar
// is finished, so that every remaining path is a prefix of a complete match.
namespace jerboa {

using State = std::int32_t;

/// Ranges of code points, ascending and disjoint.
using CodePoints = std::vector<std::pair<char32_t, char32_t>>;
CodePoints normalize(CodePoints points);
/// The complement of `points`; surrogates are in no set.
CodePoints complement(const CodePoints& points);
CodePoints intersect(const CodePoints& a, const CodePoints& b);

/// The characters of UTF-8 text; nullopt if it is not valid UTF-8.
std::optional<std::u32string> characters_of(std::string_view text);

/// The context of a pattern's characters: plain text, or a JSON string, in which some are escaped.
enum class Encoding { plain, json_string };

class Grammar {
 public:
  static constexpr std::int64_t unreachable = INT64_MAX / 4;

  struct ByteEdge {
    std::uint8_t first, last;
    State target;
  };
  struct CallEdge {
    State callee, resume;
  };
  struct Node {
    std::vector<ByteEdge> bytes;
    std::vector<State> empty;
    std::vector<CallEdge> calls;
    bool end = false;           // of its automaton: the caller resumes
    std::int64_t distance = 0;  // fewest bytes from here to an end; known once finished
  };
  /// An automaton: its start state and its only end state.
  struct Rule {
    State start, end;
  };

  Grammar();

  State add_state();
  /// An empty rule, to be filled in between its start and its end.
  Rule add_rule();
  void add_empty(State from, State to) { at(from).empty.push_back(to); }
  void add_bytes(State from, State to, std::uint8_t first, std::uint8_t last);
  void add_call(State from, State to, Rule rule) { at(from).calls.push_back({rule.start, to}); }
  State add_text(State from, std::string_view text);
  void add_text(State from, State to, std::string_view text);
  /// One character of the set.
  void add_characters(State from, State to, const CodePoints& set, Encoding encoding);

  /// Sets the root rule and drops dead ends. Throws ConstraintError if nothing remains.
  void finish(Rule root);

  const Node& operator[](State state) const { return nodes_[static_cast<std::size_t>(state)]; }
  State start() const { return start_; }

 private:
  Node& at(State state) { return nodes_[static_cast<std::size_t>(state)]; }
  void add_utf8(State from, State to, char32_t first, char32_t last);
  void measure();

  std::vector<Node> nodes_;
  State start_ = 0;
  std::map<std::pair<CodePoints, Encoding>, Rule> sets_;  // sets beyond ASCII, cached
};

}  // namespace jerboa
