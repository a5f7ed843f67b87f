#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace jerboa::serving {

/// The tokens of a text that penalties consider, with how often each was generated.
class SeenTokens {
 public:
  /// `window`: how many of the latest tokens are considered; 0: all.
  SeenTokens(std::span<const std::int32_t> prompt, int window);

  /// Adds a generated token.
  void push(std::int32_t token);
  /// Evicts the token that one more would push out of the window.
  void leave_room();

  /// Whether one more token may evict another.
  bool has_window() const { return window_ > 0; }
  std::size_t size() const { return counts_.size(); }
  /// Lists them in the format of TokenValues; both spans have room for size() elements.
  void list(std::span<std::int32_t> tokens, std::span<float> occurrences) const;

 private:
  struct Count {
    int seen = 0, generated = 0;
  };
  void forget_before(std::size_t first);

  std::vector<std::int32_t> tokens_;
  std::size_t prompt_size_, window_, first_ = 0;  // of the window
  std::unordered_map<std::int32_t, Count> counts_;
};

}  // namespace jerboa::serving
