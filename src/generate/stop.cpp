#include <algorithm>
#include <utility>

#include <jerboa/base/error.h>
#include <jerboa/generate/stop.h>

namespace jerboa {

StopMatcher::StopMatcher(std::vector<std::string> strings, std::vector<int> tokens)
    : strings_(std::move(strings)), tokens_(std::move(tokens)) {
  for (const std::string& text : strings_)
    if (text.empty()) throw UsageError("a stop string is empty");
}

bool StopMatcher::is_stop_token(int token) const {
  return std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end();
}

std::string StopMatcher::feed(std::string_view piece) {
  if (stopped()) return {};
  held_ += piece;
  // The match that ends first, as if the text arrived byte by byte; if several end together, the longest.
  std::size_t first_end = std::string::npos;
  const std::string* match = nullptr;
  for (const std::string& text : strings_) {
    const std::size_t at = held_.find(text);
    if (at == std::string::npos) continue;
    const std::size_t end = at + text.size();
    if (match != nullptr && (end > first_end || (end == first_end && text.size() <= match->size()))) continue;
    first_end = end;
    match = &text;
  }
  if (match != nullptr) {
    std::string out = held_.substr(0, first_end - match->size());
    held_.clear();
    found_ = *match;
    return out;
  }
  std::size_t keep = 0;
  for (const std::string& text : strings_)
    for (std::size_t size = std::min(text.size() - 1, held_.size()); size > keep; --size)
      if (held_.compare(held_.size() - size, size, text, 0, size) == 0) {
        keep = size;
        break;
      }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace jerboa
