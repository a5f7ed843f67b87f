#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace jerboa::serving {

/// Guesses how a text continues from its own past: if its last tokens occurred before, it proposes the tokens that
/// followed them there. Works well for texts that quote their prompt: summaries, edits, code. Constant time per token.
class PromptLookup {
 public:
  /// Looks for the last `longest` tokens first, then for fewer, down to `shortest`.
  explicit PromptLookup(int shortest = 2, int longest = 4);

  /// Up to `count` tokens that may follow `tokens`, which must begin with the tokens of the previous call; empty if the
  /// last tokens are new.
  std::vector<std::int32_t> propose(std::span<const std::int32_t> tokens, int count);

 private:
  void index(std::span<const std::int32_t> tokens);

  int shortest_, longest_;
  std::size_t indexed_ = 0;
  // The position after the latest occurrence of each run of tokens, by the hash of the run.
  std::unordered_map<std::uint64_t, std::size_t> followers_;
};

}  // namespace jerboa::serving
