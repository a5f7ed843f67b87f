#include "text/aligned_text.h"

#include <utility>

#include "text/utf8.h"

namespace jerboa {
namespace {

// The number of edits that begin before `position` (or at it, when `inclusive`), walking from the last answer.
std::size_t edits_before(const std::vector<Edit>& edits, std::size_t hint, std::uint32_t position, bool inclusive) {
  auto before = [&](std::size_t i) {
    return inclusive ? edits[i].target.begin <= position : edits[i].target.begin < position;
  };
  while (hint > 0 && !before(hint - 1)) --hint;
  while (hint < edits.size() && before(hint)) ++hint;
  return hint;
}

}  // namespace

void Rewriter::replace(std::size_t begin, std::size_t end, std::string_view with) {
  if (source_.substr(begin, end - begin) == with) return;
  target_ += source_.substr(copied_, begin - copied_);
  copied_ = end;
  const auto target_begin = static_cast<std::uint32_t>(target_.size());
  target_ += with;
  edits_.push_back({{target_begin, static_cast<std::uint32_t>(target_.size())},
                    {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)}});
}

void Rewriter::prepend(std::size_t at, std::string_view text) {
  const std::size_t size = utf8::decode(source_, at).size;
  std::string both(text);
  both += source_.substr(at, size);
  replace(at, at + size, both);
}

void AlignedText::apply(Rewriter&& rewriter) {
  if (rewriter.edits_.empty()) return;
  rewriter.target_ += rewriter.source_.substr(rewriter.copied_);
  text_ = std::move(rewriter.target_);
  stages_.push_back({std::move(rewriter.edits_), 0, 0});
}

Range AlignedText::original(Range range) {
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    const auto& edits = stage->edits;
    stage->begin_hint = edits_before(edits, stage->begin_hint, range.begin, true);
    stage->end_hint = edits_before(edits, stage->end_hint, range.end, false);
    if (stage->begin_hint > 0) {
      const Edit& edit = edits[stage->begin_hint - 1];
      range.begin =
          range.begin < edit.target.end ? edit.source.begin : edit.source.end + (range.begin - edit.target.end);
    }
    if (stage->end_hint > 0) {
      const Edit& edit = edits[stage->end_hint - 1];
      range.end = range.end <= edit.target.end ? edit.source.end : edit.source.end + (range.end - edit.target.end);
    }
    // An empty range after a deletion: its begin has moved past the deletion, but its end has not.
    if (range.end < range.begin) range.end = range.begin;
  }
  return range;
}

}  // namespace jerboa
