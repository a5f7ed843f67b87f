#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace jerboa::mcp {

/// Splits data that arrives in pieces into lines.
class LineBuffer {
 public:
  void add(std::string_view bytes) { text_ += bytes; }
  std::size_t size() const { return text_.size(); }
  /// The next whole line, without its end.
  std::optional<std::string> take() {
    const std::size_t end = text_.find('\n', searched_);
    if (end == std::string::npos) {
      searched_ = text_.size();
      return std::nullopt;
    }
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    searched_ = 0;
    if (line.ends_with('\r')) line.pop_back();
    return line;
  }

 private:
  std::string text_;
  std::size_t searched_ = 0;  // up to here there is no line break
};

}  // namespace jerboa::mcp
