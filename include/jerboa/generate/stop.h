#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace jerboa {

/// Finds the first stop string in text that arrives in pieces, even if it spans several, and holds back text that may
/// be the start of one.
///
///     StopMatcher stop({"\nUser:"}, {end_token});
///     if (stop.is_stop_token(token)) …
///     std::cout << stop.feed(piece);
///     if (stop.stopped()) …
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> strings, std::vector<int> tokens = {});

  bool is_stop_token(int token) const;
  /// The text that is now certain to precede any stop string; nothing once stopped().
  std::string feed(std::string_view piece);
  /// The text held back, to be called when the text ends without a stop string.
  std::string finish();
  bool stopped() const { return found_.has_value(); }
  /// The stop string that was found.
  const std::optional<std::string>& found() const { return found_; }

 private:
  std::vector<std::string> strings_;
  std::vector<int> tokens_;
  std::string held_;
  std::optional<std::string> found_;
};

}  // namespace jerboa
