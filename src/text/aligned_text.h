#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

/// Bytes [begin, end) of a text.
struct Range {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool empty() const { return begin == end; }
  bool operator==(const Range&) const = default;
};

inline Range shifted(Range range, std::uint32_t by) { return {range.begin + by, range.end + by}; }

/// A rewritten part of a text, and the part of the source that it replaces.
struct Edit {
  Range target;
  Range source;
};

/// Writes a modified copy of a text and records the changes. Nothing is copied before the first change.
class Rewriter {
 public:
  explicit Rewriter(std::string_view source) : source_(source) {}

  /// Replaces [begin, end), which must not be before the last replacement.
  void replace(std::size_t begin, std::size_t end, std::string_view with);
  /// Inserts `text` before the character at `at` and aligns both with that character.
  void prepend(std::size_t at, std::string_view text);
  void remove(std::size_t begin, std::size_t end) { replace(begin, end, {}); }

  /// Where the source position `at` ends up in the result; it must not be before the last replacement.
  std::size_t target_size(std::size_t at) const { return target_.size() + (at - copied_); }

 private:
  friend class AlignedText;
  std::string_view source_;
  std::size_t copied_ = 0;
  std::string target_;
  std::vector<Edit> edits_;
};

/// A text on its way through normalizers and pre-tokenizers. Tracks where in the original each part comes from, with
/// one list of edits per stage that changed anything.
class AlignedText {
 public:
  /// Borrows `original`, which must outlive this.
  explicit AlignedText(std::string_view original) : original_(original) {}

  std::string_view text() const { return stages_.empty() ? original_ : std::string_view(text_); }

  /// Makes the rewriter's result the current text.
  void apply(Rewriter&& rewriter);

  /// The part of the original that a part of the current text comes from: from the first byte to the last byte of the
  /// sources of everything in it. Amortised constant time for ranges that come in order.
  Range original(Range range);

 private:
  struct Stage {
    std::vector<Edit> edits;
    std::size_t begin_hint = 0;
    std::size_t end_hint = 0;
  };
  std::string_view original_;
  std::string text_;
  std::vector<Stage> stages_;
};

}  // namespace jerboa
