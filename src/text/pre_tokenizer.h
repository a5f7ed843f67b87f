#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/json_view.h"
#include "text/pattern.h"
#include "text/word_scanner.h"

namespace jerboa {

/// A text and the words that it is being split into.
struct Words {
  AlignedText& text;
  std::vector<Range> ranges;  // in text.text(), in order
  bool at_start = true;       // whether the original begins here
};

/// How a Split treats the text that it matches.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

enum class PrependScheme { first, never, always };

/// The pre-tokenizers of tokenizer.json.
namespace pre_tokenizers {
struct ByteLevel {
  bool add_prefix_space = true;
  bool use_regex = true;
  bool spell = true;  // write the bytes in the byte alphabet; not needed by a model that reads bytes
  void apply(Words& words) const;
};
struct Split {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;
  std::optional<WordScanner> scanner;  // replaces the pattern, if one is known
  void apply(Words& words) const;
};
/// Splits by a property of single characters.
struct SplitCharacters {
  enum class Property { space, punctuation, digit, character };
  Property property = Property::space;
  SplitBehavior behavior = SplitBehavior::removed;
  char32_t character = 0;
  void apply(Words& words) const;
};
/// Runs of word characters, and runs of anything else that is not white space.
struct Whitespace {
  void apply(Words& words) const;
};
struct Metaspace {
  std::string replacement = "\u2581";
  PrependScheme prepend_scheme = PrependScheme::always;
  bool split = true;
  void apply(Words& words) const;
};
struct FixedLength {
  std::size_t length = 5;  // characters
  void apply(Words& words) const;
};
}  // namespace pre_tokenizers

/// A chain of pre-tokenizers; an empty one turns a text into a single word.
class PreTokenizer {
 public:
  using Step = std::variant<pre_tokenizers::ByteLevel, pre_tokenizers::Split, pre_tokenizers::SplitCharacters,
                            pre_tokenizers::Whitespace, pre_tokenizers::Metaspace, pre_tokenizers::FixedLength>;

  static PreTokenizer parse(const JsonView& json);

  void add(Step step) { steps_.push_back(std::move(step)); }
  void apply(Words& words) const;

  /// If the last step spells bytes, removes it and returns true: then the model reads the bytes themselves.
  bool leave_bytes();

  /// For tests: runs every regular expression through the engine.
  void forget_scanners();

 private:
  void parse_into(const JsonView& json, int depth);
  std::vector<Step> steps_;
};

SplitBehavior parse_split_behavior(const JsonView& json);
PrependScheme parse_prepend_scheme(const JsonView& json);

}  // namespace jerboa
